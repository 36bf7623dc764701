// hub_list.h - the hub's answer to "which files are in this revision?", as JSON from a stranger.
#pragma once
#include "hub/hub_files.h"

enum { HUB_LIST_BYTES = 4 << 20 }; // an answer that is longer is not read: about 15,000 files

// {"sha": COMMIT, "siblings": [{"rfilename", "size", "blobId", "lfs": {"sha256"}}]} and whatever else is in
// it. A file whose name is no safe path, or that has no size or sum, is left out.
bool hub_list_read(struct str json, struct hub_files *files, struct arena *arena, struct err *err);
