// file_guard.h - a mapped file that is cut while it is in use is an error of those who read it, and not the
// end of the process.
//
// A system that has no bytes for a page of a mapped file sends SIGBUS to the thread that reads it. The
// handler here puts zeros in the place of the rest of a guarded mapping, notes that it is lost, and returns:
// the reader goes on with zeros and must ask before it shows a result. SIGBUS elsewhere goes to the handler
// before. Not seen: a file whose bytes change, and one that was cut and has grown again before it was read.
#pragma once
#include "base/file.h"

// Guards a mapping until file_unguard. 0: it is not mapped, or too many are guarded; SIGBUS is as before. Any
// thread.
uint32_t file_guard(const struct file_map *map);
void file_unguard(uint32_t guard); // 0 is allowed
// Whether zeros were read in its place. Costs two loads; any thread.
bool file_guard_lost(uint32_t guard);
