# lint_names.awk - names, for tools/lint: a tag of a struct, union or enum is defined once in the whole tree (CUDA's and Metal's sides of
# a kernel may share one), and an external function begins with the name of its file or folder, so that a reader finds it without an
# index. Prints rule, place and finding, with tabs.
#
# "Begins with": up to an underscore, with a word of the file's name (tape_diff.c: tape_ or diff_) or with a folder's below src; one s at
# the end of these is dropped. ingot_ belongs to include/ingot.h. tests/library/older.c has its own copy of ingot.h as it once was.
function strip_s(word) {
    return word ~ /[^s]s$/ ? substr(word, 1, length(word) - 1) : word
}
function begins(name, word) {
    return name == word || index(name, word "_") == 1 || name == strip_s(word) || index(name, strip_s(word) "_") == 1
}
function check_function(name,   i) {
    if (name ~ /^ingot_/ || name == "main") return
    for (i = 2; i < n_parts; i++)
        if (begins(name, parts[i])) return
    for (i = 1; i <= n_words; i++)
        if (begins(name, word[i])) return
    strangers[FILENAME] = strangers[FILENAME] " " name
}
FNR == 1 {
    n_parts = split(FILENAME, parts, "/")
    stem = parts[n_parts]; sub(/\.[a-z]+$/, "", stem)
    n_words = split(stem, word, "_")
    head = ""
    checked = FILENAME ~ /^src\/.*\.c$/
}
FILENAME != "tests/library/older.c" && /^[ \t]*(typedef |static |const )*(struct|union|enum) [a-z_0-9]+ *\{/ {
    tag = $0; sub(/ *\{.*/, "", tag); sub(/.* /, "", tag)
    side = FILENAME ~ /\.cuh?$/ ? "CUDA" : FILENAME ~ /\.metalh?$/ ? "Metal" : "C"
    n_tags[tag, side]++
    all_tags[tag]
    tags[tag] = tags[tag] " " FILENAME ":" FNR
}
checked && /^\{/ && head ~ /\(/ {
    if (head !~ /^(static|[A-Z_0-9]+ static|[A-Z_]*INLINE|TARGET) / && match(head, /[A-Za-z0-9_]+\(/))
        check_function(substr(head, RSTART, RLENGTH - 1))
    head = ""
}
checked && /^[A-Za-z].*\(/ { head = $0 }
END {
    for (tag in all_tags) {
        kernels = n_tags[tag, "CUDA"] > n_tags[tag, "Metal"] ? n_tags[tag, "CUDA"] : n_tags[tag, "Metal"]
        if (n_tags[tag, "C"] + kernels > 1) print "tag\t" tag "\t" tag ": the tag has more than one meaning:" tags[tag]
    }
    for (file in strangers)
        print "extern\t" file "\t" file ": external functions that begin with neither the file's nor a folder's name:" strangers[file]
}
