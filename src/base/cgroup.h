// cgroup.h - the number of CPUs that a control group leaves to this process (Linux; containers and services
// run in one).
#pragma once

// The smallest quota of the group and of all groups above it, in whole CPUs and at least 1: a fraction of a
// CPU more would make threads wait. 0: there is none. `membership` is /proc/self/cgroup, `mount` is where the
// groups are mounted, /sys/fs/cgroup.
unsigned cgroup_n_cpus(const char *membership, const char *mount);
