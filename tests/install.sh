#!/bin/sh
# install.sh BUILD SOURCE CC - installs into an empty folder and builds and runs the examples there, by pkg-config and by CMake, and looks
# at what the library shows to a linker.
set -eu
build=$1 source=$2 cc=$3
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
prefix=$folder/usr

cmake --install "$build" --prefix "$prefix" >/dev/null
libdir=$(dirname "$(find "$prefix" -name libingot.a)")
shared=$(find "$libdir" -name 'libingot.so' -o -name 'libingot.dylib')
for file in bin/ingot include/ingot.h share/man/man1/ingot.1 share/bash-completion/completions/ingot \
    share/zsh/site-functions/_ingot share/fish/vendor_completions.d/ingot.fish share/doc/ingot/LICENSE share/doc/ingot/CHANGELOG.md; do
    [ -s "$prefix/$file" ] || {
        echo "not installed: $file" >&2
        exit 1
    }
done
# The plug-in for several hosts, where it was built, is found from the program's place.
if [ -e "$build/libingot_mpi.so" ] && ! "$prefix/bin/ingot" doctor | grep -q '^mpi .*MPI'; then
    echo "the installed program does not find its plug-in: $("$prefix/bin/ingot" doctor | grep '^mpi')" >&2
    exit 1
fi
export PKG_CONFIG_PATH="$libdir/pkgconfig" LD_LIBRARY_PATH="$libdir"

# What a linker sees are the functions that the header declares.
sed -n 's/^INGOT_API.*[ *]\(ingot_[a-z_]*\)(.*/\1/p' "$prefix/include/ingot.h" | LC_ALL=C sort >"$folder/declared"
[ "$(grep -c '^INGOT_API' "$prefix/include/ingot.h")" = "$(wc -l <"$folder/declared")" ]
dynamic=-D
[ "$(uname)" = Darwin ] && dynamic=
nm -g "$libdir/libingot.a" | awk 'NF == 3 && $2 != "U" { sub(/^_/, "", $3); print $3 }' | LC_ALL=C sort >"$folder/static"
# shellcheck disable=SC2086 # no flag is no word
nm -g $dynamic "$shared" | awk 'NF == 3 && $2 != "U" { sub(/^_/, "", $3); print $3 }' | LC_ALL=C sort >"$folder/dynamic"
for kind in static dynamic; do
    diff "$folder/declared" "$folder/$kind" || {
        echo "the $kind library (>) does not show what ingot.h declares (<)" >&2
        exit 1
    }
done
# No message names a file of the machine it was built on; debug information may.
strip -S -o "$folder/stripped" "$shared"
if grep -aqF "$source/" "$folder/stripped"; then
    echo "the library names its build's folder: $(strings "$folder/stripped" | grep -F "$source/" | head -n 1)" >&2
    exit 1
fi

nm -g "$build/libingot_all.a" >"$folder/all"
sed -n 's/^OWN(\([a-z_]*\)).*/\1/p' "$source/tests/library/own_names.c" | while read -r name; do
    grep -q " T _*$name\$" "$folder/all" || {
        echo "own_names.c: no function of the library is called $name" >&2
        exit 1
    }
done
# shellcheck disable=SC2046 # flags are words
link() { # archive or shared library, source, program
    "$cc" -std=c11 -Wall -Wextra -Werror "$2" $(pkg-config --cflags ingot) "$1" \
        $(pkg-config --static --libs ingot | tr ' ' '\n' | grep -v '^-lingot$') -o "$3"
}
for library in "$libdir/libingot.a" "$shared"; do
    for name in own_names older; do
        echo "== $name, $library"
        link "$library" "$source/tests/library/$name.c" "$folder/$name"
        "$folder/$name"
    done
done

for name in generate batch submit; do
    # shellcheck disable=SC2046 # flags are words
    "$cc" -std=c11 -Wall -Wextra -Werror "$source/examples/$name.c" $(pkg-config --cflags --libs ingot) -o "$folder/$name"
    echo "== $name"
    "$folder/$name" >"$folder/$name.txt"
    [ -s "$folder/$name.txt" ]
    cat "$folder/$name.txt"
done

# The C that the documents show: a program in README.md, statements in docs/c-api.md.
# shellcheck disable=SC2016 # backquotes are those of Markdown
c_of() { sed -n '/^```c$/,/^```$/p' "$1" | sed '/^```/d'; }
c_of "$source/README.md" >"$folder/readme.c"
# shellcheck disable=SC2046 # flags are words
"$cc" -std=c11 -Wall -Werror "$folder/readme.c" $(pkg-config --cflags --libs ingot) -o "$folder/readme"
"$folder/readme" >"$folder/readme.txt"
[ -s "$folder/readme.txt" ]
{
    echo '#include <ingot.h>'
    echo '#include <stdio.h>'
    echo 'void ask(struct ingot_engine *engine, struct ingot_request_options options, struct ingot_error error);'
    echo 'void ask(struct ingot_engine *engine, struct ingot_request_options options, struct ingot_error error) {'
    c_of "$source/docs/c-api.md"
    echo '}'
} >"$folder/guide.c"
"$cc" -std=c11 -Wall -Wextra -Werror -fsyntax-only -I "$prefix/include" "$folder/guide.c"
# The header is C++ as well.
if command -v c++ >/dev/null 2>&1; then
    echo '#include <ingot.h>' | c++ -x c++ -Wall -Wextra -Werror -fsyntax-only -I "$prefix/include" -
fi

cmake -S "$source/examples" -B "$folder/build" -G Ninja -DCMAKE_C_COMPILER="$cc" -DCMAKE_PREFIX_PATH="$prefix" >/dev/null
cmake --build "$folder/build" >/dev/null
"$folder/build/batch" >"$folder/again.txt"
cmp "$folder/batch.txt" "$folder/again.txt"
