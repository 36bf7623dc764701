// cgroup.h - how many processors a control group leaves to this process (Linux; containers and services live
// in one).
#pragma once

// The quota of the group and of all above it, in whole processors and at least 1: half a processor more would
// only be waited for. 0: none says. `membership` is /proc/self/cgroup, `mount` is where the groups are
// mounted, /sys/fs/cgroup.
unsigned cgroup_n_cpus(const char *membership, const char *mount);
