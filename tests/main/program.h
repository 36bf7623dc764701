// program.h - runs the built program as a user's shell would, and a tiny model to run it with.
//
// The model is a golden one with a byte tokenizer beside it, in a folder of its own below /tmp, which is also
// the home of the program's config and history.
#pragma once
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "testing.h"
#include "base/str.h"

extern char **environ;

static char home[] = "/tmp/ingot-program-XXXXXX";
static char model[64]; // the tiny model's folder

struct running {
    pid_t pid;
    int in, out, err; // our ends; -1: none
};

struct outcome {
    int status; // exit status, or 128 + signal
    struct buf out, err;
};

struct streams {
    int in, out, err; // the program's ends; -1: a pipe to us
};

static int ours_to_close[3], n_to_close; // the program's ends, ours too until it has started

static int pipe_end(int fd, int target, posix_spawn_file_actions_t *actions)
{
    int ends[2], theirs = target == 0 ? 0 : 1;

    if (fd >= 0) {
        posix_spawn_file_actions_adddup2(actions, fd, target);
        return -1;
    }
    assert_int_equal(pipe(ends), 0);
    fcntl(ends[0], F_SETFD, FD_CLOEXEC);
    fcntl(ends[1], F_SETFD, FD_CLOEXEC);
    posix_spawn_file_actions_adddup2(actions, ends[theirs], target);
    ours_to_close[n_to_close++] = ends[theirs];
    return ends[1 - theirs];
}

// words: separated by single spaces; "@" stands for the tiny model's folder.
static struct running start(const char *words, struct streams with)
{
    static char line[4096];
    char *argv[64] = { (char *)(uintptr_t)PROGRAM };
    posix_spawn_file_actions_t actions;
    struct running r;
    size_t n = 1;

    snprintf(line, sizeof line, "%s", words);
    for (char *word = strtok(line, " "); word && n < 63; word = strtok(NULL, " "))
        argv[n++] = strcmp(word, "@") ? word : model;
    posix_spawn_file_actions_init(&actions);
    r.in = pipe_end(with.in, 0, &actions);
    r.out = pipe_end(with.out, 1, &actions);
    r.err = pipe_end(with.err, 2, &actions);
    assert_int_equal(posix_spawn(&r.pid, PROGRAM, &actions, NULL, argv, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    while (n_to_close)
        close(ours_to_close[--n_to_close]);
    return r;
}

// Reads until both ends are closed, and waits for the end.
static void collect(struct running *r, struct outcome *o)
{
    struct pollfd fds[2] = { { r->out, POLLIN, 0 }, { r->err, POLLIN, 0 } };
    struct buf *to[2] = { &o->out, &o->err };
    char piece[4096];
    int status;

    while (fds[0].fd >= 0 || fds[1].fd >= 0) {
        assert_true(poll(fds, 2, 60000) > 0);
        for (int i = 0; i < 2; i++) {
            ssize_t n = fds[i].fd >= 0 && fds[i].revents ? read(fds[i].fd, piece, sizeof piece) : -2;
            if (n > 0)
                buf_append(to[i], piece, (size_t)n);
            else if (n > -2) {
                close(fds[i].fd);
                fds[i].fd = -1;
            }
        }
    }
    buf_append(&o->out, "", 0);
    buf_append(&o->err, "", 0);
    if (r->in >= 0)
        close(r->in);
    assert_int_equal(waitpid(r->pid, &status, 0), r->pid);
    o->status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// Runs to the end with `in` as stdin.
static inline struct outcome run_with(const char *words, const char *in)
{
    struct running r = start(words, (struct streams){ -1, -1, -1 });
    struct outcome o = { 0 };
    size_t n = strlen(in);

    assert_true(n < 4096);     // fits the pipe
    (void)!write(r.in, in, n); // the program may have left already
    close(r.in);
    r.in = -1;
    collect(&r, &o);
    return o;
}

static void outcome_free(struct outcome *o)
{
    buf_free(&o->out);
    buf_free(&o->err);
}

static void write_file(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");

    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

// A PNG file of one pixel, below home.
static inline void make_picture(const char *name)
{
    shell("echo "
          "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg== |"
          " base64 -d > '%s/%s'",
          home, name);
}

// The byte alphabet of byte-level BPE: printable Latin-1 stands for itself, the others for U+0100 and on.
static void write_vocabulary(struct buf *b)
{
    unsigned next = 256;

    for (unsigned byte = 0; byte < 256; byte++) {
        bool itself = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
        unsigned c = itself ? byte : next++;
        buf_printf(b, "%s\"%s", byte ? "," : "", c == '"' || c == '\\' ? "\\" : "");
        if (c < 0x80)
            buf_printf(b, "%c", (int)c);
        else
            buf_printf(b, "%c%c", (int)(0xc0 | c >> 6), (int)(0x80 | (c & 63)));
        buf_printf(b, "\":%u", byte);
    }
}

static void write_tokenizer(const char *path)
{
    static const char *const added[] = { "<|endoftext|>", "<|im_start|>", "<|im_end|>" };
    struct buf b = { 0 };

    buf_text(&b, "{\"added_tokens\":[");
    for (int i = 0; i < 3; i++)
        buf_printf(&b, "%s{\"id\":%d,\"content\":\"%s\",\"special\":true,\"normalized\":false}", i ? "," : "",
                   256 + i, added[i]);
    buf_text(&b, "],\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,"
                 "\"use_regex\":true},"
                 "\"post_processor\":null,\"decoder\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":\"BPE\","
                 "\"vocab\":{");
    write_vocabulary(&b);
    buf_text(&b, "},\"merges\":[]}}");
    write_file(path, b.at);
    buf_free(&b);
}

static void copy_golden(const char *name)
{
    char from[256], to[256], piece[4096];
    size_t n;

    snprintf(from, sizeof from, SOURCE_DIR "/tests/golden/smollm2/%s", name);
    snprintf(to, sizeof to, "%s/%s", model, name);
    FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
    assert_non_null(in);
    assert_non_null(out);
    while ((n = fread(piece, 1, sizeof piece, in)) > 0)
        assert_int_equal(fwrite(piece, 1, n, out), n);
    fclose(in);
    assert_int_equal(fclose(out), 0);
}

static int make_home(void **state)
{
    char path[256];
    (void)state;

    signal(SIGPIPE, SIG_IGN);
    if (!mkdtemp(home) || setenv("XDG_CONFIG_HOME", home, 1) || setenv("XDG_STATE_HOME", home, 1))
        return 1;
    snprintf(model, sizeof model, "%s/model", home);
    assert_int_equal(mkdir(model, 0700), 0);
    copy_golden("config.json");
    copy_golden("model.safetensors");
    snprintf(path, sizeof path, "%s/tokenizer.json", model);
    write_tokenizer(path);
    snprintf(path, sizeof path, "%s/tokenizer_config.json", model);
    write_file(path, "{\"eos_token\":\"<|im_end|>\",\"chat_template\":\"{% for m in messages "
                     "%}<|im_start|>{{ m['role'] }}\\n{{ "
                     "m['content'] }}<|im_end|>\\n{% endfor %}<|im_start|>assistant\\n\"}");
    return 0;
}

static int remove_home(void **state)
{
    char command[128];
    (void)state;

    snprintf(command, sizeof command, "rm -r %s", home);
    return system(command);
}
