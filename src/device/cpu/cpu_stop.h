// cpu_stop.h - ends the plays of this process's CPUs before their time.
#pragma once

// From now on they compute nothing more, and plays fail: the process has lost what it computes for, and has
// errors to hand out before it is ended. A step of a large model takes many seconds. For any thread.
void cpu_stop(void);
