#!/bin/sh
# install.sh BUILD SOURCE CC - installs into an empty folder and builds and runs the examples there, by pkg-config and by CMake.
set -eu
build=$1 source=$2 cc=$3
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
prefix=$folder/usr

cmake --install "$build" --prefix "$prefix" >/dev/null
libdir=$(dirname "$(find "$prefix" -name 'libingot.*' -not -path '*/cmake/*' | head -n 1)")
for file in bin/ingot include/ingot.h share/man/man1/ingot.1 share/bash-completion/completions/ingot \
    share/zsh/site-functions/_ingot share/fish/vendor_completions.d/ingot.fish; do
    [ -s "$prefix/$file" ] || {
        echo "not installed: $file" >&2
        exit 1
    }
done
export PKG_CONFIG_PATH="$libdir/pkgconfig" LD_LIBRARY_PATH="$libdir"

for name in generate batch submit; do
    # shellcheck disable=SC2046 # flags are words
    "$cc" -std=c11 -Wall -Wextra -Werror "$source/examples/$name.c" $(pkg-config --cflags --libs ingot) -o "$folder/$name"
    echo "== $name"
    "$folder/$name" >"$folder/$name.txt"
    [ -s "$folder/$name.txt" ]
    cat "$folder/$name.txt"
done

cmake -S "$source/examples" -B "$folder/build" -G Ninja -DCMAKE_C_COMPILER="$cc" -DCMAKE_PREFIX_PATH="$prefix" >/dev/null
cmake --build "$folder/build" >/dev/null
"$folder/build/batch" >"$folder/again.txt"
cmp "$folder/batch.txt" "$folder/again.txt"
