# lint_names.awk - names, for tools/lint: a tag of a struct, union or enum is defined once in the whole tree (CUDA's and Metal's sides of
# a kernel may share one), and the name of an external function says where it is, so that a reader finds it without an index. Prints
# rule, place and finding, with tabs.
#
# An external function begins, up to an underscore, with one of three words: a word of its file's name (tape_diff.c: tape_ or diff_), a
# folder's name below src, or a struct that a header of its own folder defines (value_equal: struct value). One s at the end of the first
# two is dropped. ingot_ belongs to include/ingot.h. tests/library/older.c has its own copy of ingot.h as it once was.
function strip_s(word) {
    return word ~ /[^s]s$/ ? substr(word, 1, length(word) - 1) : word
}
function begins(name, word) {
    return name == word || index(name, word "_") == 1 || name == strip_s(word) || index(name, strip_s(word) "_") == 1
}
function names_its_place(name,   i) {
    if (name ~ /^ingot_/ || name == "main") return 1
    for (i = 2; i < n_parts; i++)
        if (begins(name, parts[i])) return 1
    for (i = 1; i <= n_words; i++)
        if (begins(name, word[i])) return 1
    return 0
}
function names_a_struct(name, folder,   words, n, i, tag) {
    n = split(name, words, "_")
    for (i = 1; i < n; i++) {
        tag = i == 1 ? words[1] : tag "_" words[i]
        if ((folder, tag) in structs) return 1
    }
    return 0
}
FNR == 1 {
    n_parts = split(FILENAME, parts, "/")
    stem = parts[n_parts]; sub(/\.[a-z]+$/, "", stem)
    n_words = split(stem, word, "_")
    folder = substr(FILENAME, 1, length(FILENAME) - length(parts[n_parts]))
    head = ""
    checked = FILENAME ~ /^src\/.*\.c$/
}
FILENAME != "tests/library/older.c" && /^[ \t]*(typedef |static |const )*(struct|union|enum) [a-z_0-9]+ *\{/ {
    tag = $0; sub(/ *\{.*/, "", tag); sub(/.* /, "", tag)
    side = FILENAME ~ /\.cuh?$/ ? "CUDA" : FILENAME ~ /\.metalh?$/ ? "Metal" : "C"
    n_tags[tag, side]++
    all_tags[tag]
    tags[tag] = tags[tag] " " FILENAME ":" FNR
    if (FILENAME ~ /\.h$/ && /^struct /) structs[folder, tag]
}
checked && /^\{/ && head ~ /\(/ {
    if (head !~ /^(static|[A-Z_0-9]+ static|[A-Z_]*INLINE|TARGET) / && match(head, /[A-Za-z0-9_]+\(/)) {
        name = substr(head, RSTART, RLENGTH - 1)
        if (!names_its_place(name)) doubtful[++n_doubtful] = FILENAME "\t" folder "\t" name
    }
    head = ""
}
checked && /^[A-Za-z].*\(/ { head = $0 }
END {
    for (tag in all_tags) {
        kernels = n_tags[tag, "CUDA"] > n_tags[tag, "Metal"] ? n_tags[tag, "CUDA"] : n_tags[tag, "Metal"]
        if (n_tags[tag, "C"] + kernels > 1) print "tag\t" tag "\t" tag ": the tag has more than one meaning:" tags[tag]
    }
    for (i = 1; i <= n_doubtful; i++) {
        split(doubtful[i], of, "\t")
        if (!names_a_struct(of[3], of[2])) strangers[of[1]] = strangers[of[1]] " " of[3]
    }
    for (file in strangers)
        print "extern\t" file "\t" file ": external functions that begin with no word of the file, a folder or a struct of the folder:" strangers[file]
}
