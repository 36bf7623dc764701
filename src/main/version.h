// version.h - what was built, from which commit, by what.
#pragma once

extern const char version_commit[]; // short; a "+" after it: with local changes; "unknown" outside of a clone
extern const char version_build[];  // "Linux x86_64, Release, GNU 12.2.0"
