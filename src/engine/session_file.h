// session_file.h - a session in a file: its tokens and the pages of their K and V, to continue in another
// process.
//
// The file: head, tokens, keys of the pictures' tiles, pages, the state behind the last token where the model
// has states, and the SHA-256 of all before it. It belongs to the weights, settings, device and version that
// wrote it; their digest is in the head. Numbers have this machine's byte order. The file appears whole or
// not at all. Its content is trusted: the pages enter the prefix index, as pages of cache_dir do.
#pragma once
#include "engine/session.h"

// Both locks are held.
bool session_file_save(const struct ingot_session *s, const char *path, struct err *err);
// A new session. NULL: the file does not belong to this engine, or there is no room for it.
struct ingot_session *session_file_load(struct engine *e, const char *path, struct err *err);
