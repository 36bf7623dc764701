// chat_pictures.h - pictures from files: of --image, of /image in a chat, of a path that was pasted into it.
#pragma once
#include "ingot.h"
#include "base/str.h"

enum { PICTURE_PATH_BYTES = 4096 };

struct chat_pictures { // zero-initialise; chat_pictures_free at the end
    struct ingot_picture **at;
    char **paths; // absolute where the system can tell
    size_t n;
};

// Reads one more. False with a line on stderr.
bool chat_pictures_add(struct chat_pictures *f, const char *path);
void chat_pictures_free(struct chat_pictures *f);
// How many bytes at the beginning of `line` name a picture that is there, as terminals paste a file: bare
// with backslashes before blanks, or in quotes. 0: none. Only names that end like a picture's count.
size_t chat_pictures_pasted(struct str line, char path[PICTURE_PATH_BYTES]);
