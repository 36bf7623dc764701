// emu_device.c - MTLDevice: one, whose family and limits a test can choose.
#include "emu.h"
#include <string.h>

struct device_object emu_device;

static void *device_name(void *d, selector s)
{
    (void)d;
    (void)s;
    return emu_autorelease(emu_string("Metal emulator"));
}

// MTLGPUFamily: Apple1.. from 1001, Mac2 2002, Common1.. from 3001, Metal3 5001.
static bool device_supports(void *d, selector s, ns_int family)
{
    (void)d;
    (void)s;
    return (family >= 1001 && family <= emu_knobs.family) || (family >= 3001 && family <= 3003) ||
           family == 2002 || (family == 5001 && emu_knobs.family >= 1007);
}
static uint64_t device_working_set(void *d, selector s)
{
    (void)d;
    (void)s;
    return (uint64_t)emu_knobs.memory_mb << 20;
}
static ns_uint device_allocated(struct device_object *d, selector s)
{
    (void)s;
    return (ns_uint)__atomic_load_n(&d->n_bytes, __ATOMIC_RELAXED);
}
static ns_uint device_max_buffer(void *d, selector s)
{
    return device_working_set(d, s) / 2;
}
static ns_uint device_max_threadgroup_memory(void *d, selector s)
{
    (void)d;
    (void)s;
    return MSL_THREADGROUP_BYTES;
}
static bool device_unified(void *d, selector s)
{
    (void)d;
    (void)s;
    return true;
}

EMU_CLASS(MTLDevice, &class_NSObject, struct device_object, NULL, true, METHOD("name", device_name),
          METHOD("supportsFamily:", device_supports),
          METHOD("recommendedMaxWorkingSetSize", device_working_set),
          METHOD("currentAllocatedSize", device_allocated), METHOD("maxBufferLength", device_max_buffer),
          METHOD("maxThreadgroupMemoryLength", device_max_threadgroup_memory),
          METHOD("hasUnifiedMemory", device_unified), METHOD("newCommandQueue", queue_new),
          METHOD("newBufferWithLength:options:", buffer_new),
          METHOD("newBufferWithBytes:length:options:", buffer_with_bytes),
          METHOD("newBufferWithBytesNoCopy:length:options:deallocator:", buffer_over),
          METHOD("newLibraryWithSource:options:error:", library_from_source),
          METHOD("newComputePipelineStateWithFunction:error:", pipeline_from_function),
          METHOD("newComputePipelineStateWithDescriptor:options:reflection:error:", pipeline_from_descriptor),
          METHOD("newBinaryArchiveWithDescriptor:error:", archive_from_descriptor),
          METHOD("newResidencySetWithDescriptor:error:", residency_new), METHOD("newSharedEvent", event_new),
          METHOD("newEvent", event_new), METHOD("newFence", fence_new))

void *MTLCreateSystemDefaultDevice(void);
void *MTLCopyAllDevices(void);
void *MTLCreateSystemDefaultDevice(void)
{
    emu_device.object.isa = &class_MTLDevice;
    emu_device.object.n_retains = 1;
    return &emu_device;
}

void *MTLCopyAllDevices(void)
{
    void *device = MTLCreateSystemDefaultDevice();

    return emu_array(&device, 1);
}
