// chat_command.c - what a line that begins with a slash does in a chat.
//
// One table has the commands, so that /help and the Tab key know them all. A slash and one unknown word is
// most likely a mistyped command; anything longer, and whatever has a further slash, is a message.
#include "base/file.h"
#include "main/chat/chat_loop.h"
#include "main/terminal/fail.h"
#include "main/terminal/units.h"

enum { MAX_FILE_BYTES = 1 << 24 };

struct chat_command {
    const char *name, *operand, *help;
    enum chat_next (*run)(struct chat_loop *loop, const char *operand); // operand: "" where none was typed
};

static enum chat_next clear(struct chat_loop *loop, const char *operand)
{
    (void)operand;
    conversation_cut(&loop->conversation, conversation_system(&loop->conversation) != NULL);
    loop->n_context_used = 0;
    fputs("(a new conversation)\n", stderr);
    return CHAT_READ;
}

static enum chat_next undo(struct chat_loop *loop, const char *operand)
{
    size_t last = conversation_last_user(&loop->conversation);
    (void)operand;

    if (last == SIZE_MAX) {
        fputs("(there is nothing to take back)\n", stderr);
        return CHAT_READ;
    }
    conversation_cut(&loop->conversation, last);
    fputs("(the last message and its answer are taken back)\n", stderr);
    return CHAT_READ;
}

static enum chat_next regen(struct chat_loop *loop, const char *operand)
{
    size_t last = conversation_last_user(&loop->conversation);
    (void)operand;

    if (last == SIZE_MAX) {
        fputs("(there is no message to answer again)\n", stderr);
        return CHAT_READ;
    }
    conversation_cut(&loop->conversation, last + 1);
    loop->settings->seed = reply_random_seed();
    fprintf(stderr, "(seed %llu)\n", (unsigned long long)loop->settings->seed);
    return CHAT_ASK;
}

static enum chat_next set_system(struct chat_loop *loop, const char *operand)
{
    const char *system = conversation_system(&loop->conversation);

    if (!*operand) {
        fprintf(stderr, "%s\n", system ? system : "(there is no system prompt)");
        return CHAT_READ;
    }
    bool none = !strcmp(operand, "-");
    if (conversation_set_system(&loop->conversation, none ? NULL : operand))
        fprintf(stderr, "(the system prompt is %s)\n", none ? "taken away" : "set");
    return CHAT_READ;
}

static void show_settings(const struct chat_loop *loop)
{
    struct buf text = { 0 };

    options_show(&ingot_chat_settings, loop->settings, &text);
    fputs(text.at ? text.at : "", stderr);
    buf_free(&text);
}

static enum chat_next set(struct chat_loop *loop, const char *operand)
{
    struct str words = str_from(operand);
    size_t n = strcspn(operand, " ");
    char key[64];
    struct err err;

    if (words.n == 0) {
        show_settings(loop);
        return CHAT_READ;
    }
    snprintf(key, sizeof key, "%.*s", (int)n, operand);
    const char *value = operand + n + strspn(operand + n, " ");
    const struct option_change change = { &ingot_chat_settings, key, *value ? value : "true" };
    if (!options_change(&change, loop->settings, loop->arena, &err)) {
        fail(err.message);
        return CHAT_READ;
    }
    if (loop->settings->seed == UINT64_MAX)
        loop->settings->seed = reply_random_seed();
    fprintf(stderr, "(%s is set)\n", key);
    return CHAT_READ;
}

static enum chat_next save(struct chat_loop *loop, const char *operand)
{
    struct err err;

    if (!conversation_save(&loop->conversation, operand, &err))
        fail(err.message);
    else
        fprintf(stderr, "(%zu messages are in %s)\n", loop->conversation.n, operand);
    return CHAT_READ;
}

static enum chat_next load(struct chat_loop *loop, const char *operand)
{
    struct err err;

    if (!conversation_load(&loop->conversation, operand, &err))
        fail(err.message);
    else
        fprintf(stderr, "(%zu messages from %s)\n", loop->conversation.n, operand);
    return CHAT_READ;
}

static enum chat_next attach(struct chat_loop *loop, const char *operand)
{
    struct buf text = { 0 };
    char size[16];
    struct err err;
    bool ok = file_read(&text, operand, MAX_FILE_BYTES, &err);

    if (ok && text.n && memchr(text.at, 0, text.n))
        ok = err_set(&err, ERR_INPUT, "%.200s: found a NUL byte, expected text", operand);
    if (ok && !buf_printf(&loop->attached, "%s:\n```\n%s%s```\n\n", operand, text.at ? text.at : "",
                          text.n && text.at[text.n - 1] == '\n' ? "" : "\n"))
        ok = err_memory(&err, "the file's text");
    if (ok)
        fprintf(stderr, "(%s, %s, goes with the next message)\n", operand, units_bytes(text.n, size));
    else
        fail(err.message);
    buf_free(&text);
    return CHAT_READ;
}

bool chat_attach_picture(struct chat_loop *loop, const char *path)
{
    struct chat_pictures *pictures = &loop->pictures;
    struct ingot_engine_info info;
    uint32_t width, height;

    ingot_engine_info(loop->reply->engine, &info);
    if (!info.takes_pictures) {
        fail("this model has no eyes: it cannot take a picture");
        return false;
    }
    if (!chat_pictures_add(pictures, path))
        return false;
    ingot_picture_size(pictures->at[pictures->n - 1], &width, &height);
    fprintf(stderr, "(%s, %u x %u pixels, goes with the next message)\n", path, width, height);
    return true;
}

static enum chat_next attach_picture(struct chat_loop *loop, const char *operand)
{
    chat_attach_picture(loop, operand);
    return CHAT_READ;
}

static double rate(uint64_t n, double ms)
{
    return ms > 0 ? (double)n * 1000.0 / ms : 0;
}

static enum chat_next stats(struct chat_loop *loop, const char *operand)
{
    struct ingot_engine_info info;
    (void)operand;

    ingot_engine_info(loop->reply->engine, &info);
    fprintf(stderr, "context      %u of %u tokens, %zu message%s", loop->n_context_used, info.n_context,
            loop->conversation.n, str_plural(loop->conversation.n));
    fprintf(stderr, ", %u turn%s forgotten\n", loop->conversation.n_dropped,
            str_plural(loop->conversation.n_dropped));
    fprintf(stderr, "read         %llu token%s, %.1f tok/s\n", (unsigned long long)loop->n_read,
            str_plural(loop->n_read), rate(loop->n_read, loop->prefill_ms));
    fprintf(stderr, "answered     %u time%s, %llu token%s, %.1f tok/s\n", loop->n_answers,
            str_plural(loop->n_answers), (unsigned long long)loop->n_generated, str_plural(loop->n_generated),
            rate(loop->n_generated, loop->decode_ms));
    fprintf(stderr, "seed         %llu\n", (unsigned long long)loop->settings->seed);
    return CHAT_READ;
}

static enum chat_next leave(struct chat_loop *loop, const char *operand)
{
    (void)loop;
    (void)operand;
    return CHAT_LEAVE;
}

static enum chat_next help(struct chat_loop *loop, const char *operand);

static const struct chat_command commands[] = {
    { "/file", "PATH", "the text of a file goes with the next message", attach },
    { "/image", "PATH", "a picture goes with the next message; so does one whose path begins it",
      attach_picture },
    { "/regen", NULL, "another answer to the last message", regen },
    { "/undo", NULL, "take back the last message and its answer", undo },
    { "/clear", NULL, "forget the conversation, but not the system prompt", clear },
    { "/system", "[TEXT]", "show or set the system prompt; -: none", set_system },
    { "/set", "[NAME VALUE]", "show or change settings, such as temp 0.5", set },
    { "/stats", NULL, "the context and the speed so far", stats },
    { "/save", "PATH", "write the conversation to a file", save },
    { "/load", "PATH", "go on with one that was saved", load },
    { "/help", NULL, "this list", help },
    { "/exit", NULL, "leave; so does Ctrl-D", leave },
    { 0 },
};

static enum chat_next help(struct chat_loop *loop, const char *operand)
{
    (void)loop;
    (void)operand;
    for (const struct chat_command *c = commands; c->name; c++)
        fprintf(stderr, "%-8s %-11s %s\n", c->name, c->operand ? c->operand : "", c->help);
    fputs("Ctrl-C stops an answer; twice in a row leaves. A pasted text is one message,\n"
          "so is what stands between \"\"\" and \"\"\"; a line that ends in \\ goes on.\n",
          stderr);
    return CHAT_READ;
}

// Also the names that other programs use.
static const struct chat_command *find(struct str word)
{
    static const char *const aliases[][2] = { { "/?", "/help" },
                                              { "/quit", "/exit" },
                                              { "/bye", "/exit" },
                                              { "/read", "/file" },
                                              { "/regenerate", "/regen" } };

    for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++)
        word = str_is(word, aliases[i][0]) ? str_from(aliases[i][1]) : word;
    for (const struct chat_command *c = commands; c->name; c++) {
        if (str_is(word, c->name))
            return c;
    }
    return NULL;
}

static enum chat_next run(const struct chat_command *c, struct chat_loop *loop, struct str words)
{
    bool needs = c->operand && c->operand[0] != '[';
    struct buf operand = { 0 };
    enum chat_next next = CHAT_READ;

    while (words.n && (words.at[0] == ' ' || words.at[0] == '\n'))
        words = str_from_to(words, 1, words.n);
    while (words.n && words.at[words.n - 1] == ' ') // Tab adds one after a complete name
        words.n--;
    if (needs ? words.n == 0 : !c->operand && words.n)
        fprintf(stderr, "%s: expected %s\n", c->name, needs ? c->operand : "nothing after it");
    else if (buf_append(&operand, words.at, words.n))
        next = c->run(loop, operand.at);
    buf_free(&operand);
    return next;
}

enum chat_next chat_command(struct chat_loop *loop, struct str line)
{
    size_t n = 0;

    while (n < line.n && line.at[n] != ' ' && line.at[n] != '\n')
        n++;
    const struct chat_command *c = find(str_from_to(line, 0, n));
    if (!c && (n < line.n || memchr(line.at + 1, '/', line.n - 1)))
        return CHAT_MESSAGE;
    if (!c) {
        fprintf(stderr, "'%.*s' is not a command; /help lists them\n", STR_ARG(line));
        return CHAT_READ;
    }
    return run(c, loop, str_from_to(line, n, line.n));
}

const char *chat_command_candidates(void *arg, struct str before)
{
    static char words[2048];
    struct buf text = { .max = sizeof words - 1 };
    (void)arg;

    if (!str_starts(before, STR("/")))
        return "";
    if (str_starts(before, STR("/file ")) || str_starts(before, STR("/image ")) ||
        str_starts(before, STR("/save ")) || str_starts(before, STR("/load ")))
        return NULL;
    if (str_starts(before, STR("/set ")) && str_find_last(before, ' ') == 4)
        options_keys(&ingot_chat_settings, &text);
    for (const struct chat_command *c = commands; c->name && !memchr(before.at, ' ', before.n); c++)
        buf_printf(&text, "%s ", c->name);
    snprintf(words, sizeof words, "%s", text.at ? text.at : "");
    buf_free(&text);
    return words;
}
