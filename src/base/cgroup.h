// cgroup.h - the CPUs and the memory that a control group leaves to this process (Linux; containers and
// services run in one). `membership` is /proc/self/cgroup, `mount` is where the groups are mounted,
// /sys/fs/cgroup.
#pragma once
#include <stdint.h>

// The smallest quota of the group and of all groups above it, in whole CPUs and at least 1: a fraction of a
// CPU more would make threads wait. 0: there is none.
unsigned cgroup_n_cpus(const char *membership, const char *mount);
// The smallest limit of memory of the group and of all groups above it. 0: there is none.
uint64_t cgroup_memory_bytes(const char *membership, const char *mount);
