// hub_file_list.h - parses the hub's list of the files in a revision: JSON that is not trusted.
#pragma once
#include "hub/hub_files.h"

enum { HUB_FILE_LIST_BYTES = 4 << 20 }; // a longer list is an error; about 15,000 files

// {"sha": COMMIT, "siblings": [{"rfilename", "size", "blobId", "lfs": {"sha256"}}]}; other fields are
// ignored. A file whose name is no safe path, or that has no size or digest, is left out.
bool hub_file_list_read(struct str json, struct hub_files *files, struct arena *arena, struct err *err);
