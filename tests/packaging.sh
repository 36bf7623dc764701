#!/bin/sh
# packaging.sh BUILD SOURCE - what is said twice agrees: the formula's libraries are those of tools/deps, the unit is one that systemd
# takes and counts as closed (where systemd-analyze is), and the formula is Ruby (where ruby is).
set -eu
build=$1 source=$2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
formula=$source/packaging/ingot.rb.in

libraries=$(sed -n '/^    build)/,/;;/p' "$source/tools/deps" | grep -o 'library .*' | cut -d ' ' -f 4)
[ -n "$libraries" ]
for library in $libraries; do
    grep -q "\"$library\"" "$formula" || {
        echo "packaging/ingot.rb.in lacks $library, which tools/deps installs" >&2
        exit 1
    }
done
if command -v ruby >/dev/null; then
    ruby -c "$formula"
fi
if [ -e "$build/ingot.service" ] && command -v systemd-analyze >/dev/null; then
    sed "s#^ExecStart=[^ ]*#ExecStart=$build/ingot#" "$build/ingot.service" >"$folder/ingot.service"
    systemd-analyze verify --man=no "$folder/ingot.service"
    systemd-analyze security --offline=true --threshold=20 "$folder/ingot.service" >"$folder/report" || { # at most 2.0 of 10
        cat "$folder/report" >&2
        exit 1
    }
fi
