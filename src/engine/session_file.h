// session_file.h - a session in a file: its tokens and the pages of their K and V, to go on in another
// process.
//
// A file: head, tokens, pages, and the SHA-256 of all before it. It belongs to the weights, settings, device
// and version that made it, whose digest is in its head; numbers lie as this machine has them. It appears
// whole or not at all. Whoever writes it is trusted with the numbers: its pages enter the index of prompts,
// as those of cache_dir do.
#pragma once
#include "engine/session.h"

// Both locks are held.
bool session_file_save(const struct ingot_session *s, const char *path, struct err *err);
// A new session; NULL: the file is not one of this engine's, or there is no room for it.
struct ingot_session *session_file_load(struct engine *e, const char *path, struct err *err);
