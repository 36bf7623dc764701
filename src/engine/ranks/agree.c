// agree.c - see agree.h. Each rank tells rank 0, which compares and tells all what came of it.
#include "engine/ranks/agree.h"
#include <string.h>
#include "base/str.h"
#include "engine/ranks/ranks_internal.h"

struct agree_part { // body of RANK_HELLO, followed by the facts; and of RANK_VERDICT
    uint32_t code, reserved;
    char message[504];
};

static struct str next_line(struct str *rest)
{
    size_t end = str_find(*rest, STR("\n"));
    struct str line = str_from_to(*rest, 0, end == SIZE_MAX ? rest->n : end);

    *rest = str_from_to(*rest, end == SIZE_MAX ? rest->n : end + 1, rest->n);
    return line;
}

static struct str printable(struct str line)
{
    size_t n = 0;

    while (n < line.n && n < 120 && (unsigned char)line.at[n] >= ' ')
        n++;
    return str_from_to(line, 0, n);
}

bool agree_facts(const char *mine, const char *other, struct err *err)
{
    struct str a = str_from(mine), b = str_from(other);

    while (a.n > 0 || b.n > 0) {
        struct str first = next_line(&a), second = next_line(&b);
        if (str_eq(first, second))
            continue;
        size_t colon = str_find(first, STR(": "));
        struct str what = str_from_to(first, 0, colon == SIZE_MAX ? 0 : colon + 2);
        return err_set(err, ERR_INPUT,
                       "%.*s here, and rank 0 has %.*s; give all ranks the same model, options and ingot",
                       STR_ARG(printable(second)), STR_ARG(printable(str_from_to(first, what.n, first.n))));
    }
    return true;
}

static void fill(struct agree_part *part, bool ok, const struct err *err)
{
    *part = (struct agree_part){ .code = ok ? ERR_NONE : err->code == ERR_NONE ? ERR_DEVICE : err->code };
    if (!ok)
        memcpy(part->message, err->message, sizeof part->message);
}

// Whether it is one, as it came.
static bool read_part(const struct rank_message *m, struct agree_part *part)
{
    if (m->n_bytes < sizeof *part)
        return false;
    memcpy(part, m->body, sizeof *part);
    part->message[sizeof part->message - 1] = 0;
    for (char *c = part->message; *c; c++)
        *c = (unsigned char)*c >= ' ' ? *c : ' ';
    return part->code <= ERR_TIMEOUT;
}

static bool post_part(struct ranks *g, uint32_t to, const struct agree_part *part, const char *facts)
{
    size_t n = facts ? strlen(facts) + 1 : 0;
    struct err err = { 0 };
    struct rank_message *m = n + sizeof *part <= RANK_HELLO_BYTES
                                 ? ranks_room(g, facts ? RANK_HELLO : RANK_VERDICT, sizeof *part + n, &err)
                                 : NULL;

    if (!m)
        return false;
    memcpy(m->body, part, sizeof *part);
    if (n)
        memcpy(m->body + sizeof *part, facts, n);
    ranks_post(g, to, m);
    return true;
}

static bool follow(struct ranks *g, bool ok, const char *facts, struct err *err)
{
    struct agree_part part;

    fill(&part, ok, err);
    if (!post_part(g, 0, &part, facts))
        return err_memory(err, "an agreement");
    struct rank_message *m = ranks_take(g, RANK_BIT(RANK_VERDICT), err);
    if (!m)
        return false;
    bool right = read_part(m, &part);
    ranks_free(g, m);
    if (!right)
        return err_set(err, ERR_DEVICE,
                       "rank 0 sent a verdict of another form; all ranks need the same ingot");
    return part.code == ERR_NONE || err_set(err, (enum err_code)part.code, "%s", part.message);
}

static bool judge(const struct rank_message *m, const char *facts, struct err *err)
{
    struct agree_part part;

    if (!read_part(m, &part) || m->n_bytes == sizeof part || m->body[m->n_bytes - 1] != 0)
        return err_set(err, ERR_DEVICE, "speaks another form; all ranks need the same ingot");
    if (part.code != ERR_NONE)
        return err_set(err, (enum err_code)part.code, "%s", part.message);
    return agree_facts(facts, (const char *)m->body + sizeof part, err);
}

static bool name_rank(struct ranks *g, uint32_t rank, struct err *err)
{
    char name[RANK_NAME_BYTES];

    ranks_name(g, rank, name);
    return err_prefix(err, "%s", name);
}

// Hears all before it judges. False: the group is lost.
static bool hear(struct ranks *g, struct rank_message *heard[MAX_RANKS], struct err *err)
{
    for (uint32_t n = 1; n < ranks_n(g); n++) {
        struct rank_message *m = ranks_take(g, RANK_BIT(RANK_HELLO), err);
        if (!m)
            return false;
        if (!heard[m->peer])
            heard[m->peer] = m;
        else
            ranks_free(g, m);
    }
    return true;
}

static bool lead(struct ranks *g, bool ok, const char *facts, struct err *err)
{
    struct rank_message *heard[MAX_RANKS] = { 0 };
    struct agree_part verdict;
    bool here = hear(g, heard, ok ? err : &(struct err){ 0 });

    if (!ok)
        name_rank(g, 0, err);
    for (uint32_t i = 1; i < ranks_n(g) && here && ok; i++)
        ok = heard[i] ? judge(heard[i], facts, err) || name_rank(g, i, err)
                      : err_set(err, ERR_DEVICE, "rank %u spoke out of turn", i);
    ok = ok && here;
    fill(&verdict, ok, err);
    for (uint32_t i = 1; i < ranks_n(g); i++) {
        ranks_free(g, heard[i]);
        if (here)
            post_part(g, i, &verdict, NULL);
    }
    return ok;
}

bool ranks_agree(struct ranks *g, bool ok, const char *facts, struct err *err)
{
    return ranks_rank(g) == 0 ? lead(g, ok, facts, err) : follow(g, ok, facts, err);
}
