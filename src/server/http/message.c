// message.c - see message.h. The library accepts these and message.c rejects them: lines that end in LF alone
// or are folded, control characters, blanks in names, two blanks in the request line, chunk extensions,
// trailers, versions other than 1.0 and 1.1.
#include "server/http/message.h"
#include <strings.h>
#include "base/mem.h"

// ---- the library

#ifdef INGOT_LLHTTP
#include <llhttp.h>
typedef llhttp_t http_library;
typedef llhttp_settings_t http_callbacks;
enum { PAUSE = HPE_PAUSED };
#else
#include <http_parser.h>
typedef http_parser http_library;
typedef http_parser_settings http_callbacks;
enum { PAUSE = 0 };
#endif

struct message_parser {
    http_library library;
};

static struct message *message_of(http_library *library)
{
    return library->data;
}

static int stop_here(http_library *library)
{
#ifndef INGOT_LLHTTP
    http_parser_pause(library, 1);
#else
    (void)library;
#endif
    return PAUSE;
}

static const http_callbacks callbacks;

static void begin(struct message *m)
{
#ifdef INGOT_LLHTTP
    llhttp_init(&m->parser->library, HTTP_REQUEST, &callbacks);
#else
    http_parser_init(&m->parser->library, HTTP_REQUEST);
#endif
    m->parser->library.data = m;
}

// Returns the number of bytes taken. *problem: the library's message, or NULL.
static size_t run(struct message *m, const char *bytes, size_t n, const char **problem)
{
    http_library *library = &m->parser->library;
#ifdef INGOT_LLHTTP
    enum llhttp_errno error = llhttp_execute(library, bytes, n);
    *problem = error == HPE_OK || error == HPE_PAUSED ? NULL : llhttp_get_error_reason(library);
    return error == HPE_OK ? n : (size_t)(llhttp_get_error_pos(library) - bytes);
#else
    size_t taken = http_parser_execute(library, &callbacks, bytes, n);
    enum http_errno error = HTTP_PARSER_ERRNO(library);
    *problem = error == HPE_OK || error == HPE_PAUSED ? NULL : http_errno_description(error);
    return taken;
#endif
}

static bool keeps_alive(const http_library *library)
{
#ifdef INGOT_LLHTTP
    return llhttp_should_keep_alive(library);
#else
    return http_should_keep_alive(library);
#endif
}

static const char *method_name(const http_library *library)
{
#ifdef INGOT_LLHTTP
    return llhttp_method_name((enum llhttp_method)library->method);
#else
    return http_method_str((enum http_method)library->method);
#endif
}

#define TEXT_OF(x)       #x
#define VERSION(a, b, c) TEXT_OF(a) "." TEXT_OF(b) "." TEXT_OF(c)

const char *message_library(void)
{
#ifdef INGOT_LLHTTP
    return VERSION(LLHTTP_VERSION_MAJOR, LLHTTP_VERSION_MINOR, LLHTTP_VERSION_PATCH);
#else
    return "http_parser " VERSION(HTTP_PARSER_VERSION_MAJOR, HTTP_PARSER_VERSION_MINOR,
                                  HTTP_PARSER_VERSION_PATCH);
#endif
}

// ---- the framing bytes

static bool head_byte(struct message *m, unsigned char c)
{
    unsigned char before = m->before;

    m->before = c;
    if (before == '\r' || c == '\n')
        return before == '\r' && c == '\n';
    if (c == '\r')
        return true;
    if ((c == ' ' || c == '\t') && (m->line_is_empty || (c == before && !m->any_line)))
        return false;
    m->line_is_empty = false;
    return c == '\t' || (c >= 0x20 && c != 0x7f);
}

// Checks the bytes of the head up to its empty line; *ended: the line was found. False: the head is
// malformed.
static bool check_head(struct message *m, bool *ended)
{
    *ended = false;
    while (m->at < m->end && !*ended) {
        unsigned char c = (unsigned char)*m->at++;
        if (++m->n_head_bytes > m->most_head_bytes) {
            m->state = MESSAGE_LARGE;
            return false;
        }
        if (!head_byte(m, c)) {
            m->problem = "a line of the head is folded, ends in LF alone, or holds a control character or a "
                         "blank too many";
            return false;
        }
        if (c != '\n')
            continue;
        *ended = m->line_is_empty && m->any_line;
        m->any_line |= !m->line_is_empty;
        m->line_is_empty = true;
    }
    return true;
}

enum frame {
    FRAME_SIZE,
    FRAME_DIGITS,
    FRAME_SIZE_LF,
    FRAME_DATA_CR,
    FRAME_DATA_LF,
    FRAME_LAST_CR,
    FRAME_LAST_LF,
    FRAME_END
};

static bool frame_byte(struct message *m, char c)
{
    switch ((enum frame)m->frame) {
    case FRAME_SIZE:
        m->last_chunk = true;
        m->frame = FRAME_DIGITS;
        if (c == '\r')
            return false;
        // fallthrough
    case FRAME_DIGITS:
        m->last_chunk &= c == '0' || c == '\r';
        if (c == '\r')
            m->frame = FRAME_SIZE_LF;
        return c == '\r' || (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'f');
    case FRAME_SIZE_LF:
        m->frame = m->last_chunk ? FRAME_LAST_CR : FRAME_DATA_CR;
        return c == '\n';
    case FRAME_DATA_CR:
    case FRAME_LAST_CR:
        m->frame++;
        return c == '\r';
    case FRAME_DATA_LF:
        m->frame = FRAME_SIZE;
        return c == '\n';
    case FRAME_LAST_LF:
        m->frame = FRAME_END;
        return c == '\n';
    case FRAME_END:
        break;
    }
    return false;
}

// Checks the bytes from `at` to here, which are no part of the body.
static bool check_frame(struct message *m, const char *here)
{
    for (; m->at < here; m->at++)
        if (!m->chunked || !frame_byte(m, *m->at)) {
            m->problem = "a chunk has more around it than its length in hexadecimal digits";
            return false;
        }
    return true;
}

// ---- the library's callbacks

static int store(struct message *m, const char *bytes, size_t n)
{
    return buf_append(&m->text, bytes, n) ? 0 : -1;
}

static int on_url(http_library *library, const char *bytes, size_t n)
{
    return store(message_of(library), bytes, n);
}

static int on_name(http_library *library, const char *bytes, size_t n)
{
    struct message *m = message_of(library);

    if (m->in_value || m->n_fields == 0) {
        m->in_value = false;
        store(m, "", 1);
        if (m->n_stored < MESSAGE_MAX_FIELDS)
            m->fields[m->n_stored++] = (struct message_field){ m->text.n, m->text.n };
        m->n_fields++;
    }
    return store(m, bytes, n);
}

static int on_value(http_library *library, const char *bytes, size_t n)
{
    struct message *m = message_of(library);

    if (!m->in_value) {
        m->in_value = true;
        store(m, "", 1);
        if (m->n_fields <= MESSAGE_MAX_FIELDS)
            m->fields[m->n_stored - 1].value = m->text.n;
    }
    return store(m, bytes, n);
}

// Strips the blanks around values. False: a name has a blank in it.
static bool tidy_fields(struct message *m)
{
    for (unsigned i = 0; i < m->n_stored; i++) {
        char *name = m->text.at + m->fields[i].name, *value = m->text.at + m->fields[i].value,
             *end = value + strlen(value);
        if (strpbrk(name, " \t"))
            return false;
        while (end > value && (end[-1] == ' ' || end[-1] == '\t'))
            *--end = 0;
        m->fields[i].value += strspn(value, " \t");
    }
    return true;
}

static int on_head(http_library *library)
{
    struct message *m = message_of(library);
    bool ended;

    library->upgrade = 0; // an Upgrade header is ignored: the connection stays HTTP/1.1
    if (!check_head(m, &ended))
        return -1;
    if (!ended || store(m, "", 1) != 0 || !tidy_fields(m)) {
        m->problem = "a header has a blank in its name";
        return -1;
    }
    if (library->http_major != 1 || library->http_minor > 1) {
        m->problem = "want version 1.1 or 1.0";
        return -1;
    }
    m->is_1_0 = library->http_minor == 0;
    m->keeps_alive = keeps_alive(library);
    m->method = method_name(library);
    m->chunked = message_field(m, "transfer-encoding", NULL) != NULL;
    m->state = MESSAGE_BODY;
    return m->reader->head(m->arg) ? 0 : -1;
}

static int on_body(http_library *library, const char *bytes, size_t n)
{
    struct message *m = message_of(library);

    if (!check_frame(m, bytes))
        return -1;
    m->at = bytes + n;
    return m->reader->body(m->arg, bytes, n) ? 0 : -1;
}

static int on_whole(http_library *library)
{
    message_of(library)->state = MESSAGE_COMPLETE;
    return stop_here(library);
}

static const http_callbacks callbacks = { .on_url = on_url,
                                          .on_header_field = on_name,
                                          .on_header_value = on_value,
                                          .on_headers_complete = on_head,
                                          .on_body = on_body,
                                          .on_message_complete = on_whole };

// ---- reading

size_t message_read(struct message *m, const char *bytes, size_t n)
{
    const char *problem;
    bool ended;

    if (n == 0) // the library takes 0 bytes for the end of the connection
        return 0;
    m->at = bytes;
    m->end = bytes + n;
    size_t taken = run(m, bytes, n, &problem);
    m->end = bytes + taken;
    if (m->state == MESSAGE_HEAD)
        check_head(m, &ended);
    else if (m->state != MESSAGE_LARGE && !m->problem)
        check_frame(m, bytes + taken);
    if (m->text.failed)
        m->problem = "out of memory";
    if (!m->problem && problem && m->state != MESSAGE_LARGE)
        m->problem = problem;
    if (m->problem)
        m->state = MESSAGE_BAD;
    return taken;
}

const char *message_target(const struct message *m)
{
    return m->text.n ? m->text.at : "";
}

const char *message_field(const struct message *m, const char *name, unsigned *n)
{
    const char *value = NULL;
    unsigned found = 0;

    for (unsigned i = 0; i < m->n_stored; i++)
        if (!strcasecmp(m->text.at + m->fields[i].name, name)) {
            value = m->text.at + m->fields[i].value;
            found++;
        }
    if (n)
        *n = found;
    return value;
}

void message_next(struct message *m)
{
    struct message fresh = { .reader = m->reader,
                             .arg = m->arg,
                             .most_head_bytes = m->most_head_bytes,
                             .parser = m->parser,
                             .fields = m->fields,
                             .before = '\n',
                             .line_is_empty = true };

    buf_free(&m->text);
    *m = fresh;
    begin(m);
}

bool message_create(struct message *m, const struct message_reader *reader, size_t most_head_bytes, void *arg)
{
    *m = (struct message){ .reader = reader, .arg = arg, .most_head_bytes = most_head_bytes };
    m->parser = mem_alloc(sizeof *m->parser);
    m->fields = mem_alloc_array(MESSAGE_MAX_FIELDS, sizeof *m->fields);
    if (!m->parser || !m->fields) {
        message_destroy(m);
        return false;
    }
    message_next(m);
    return true;
}

void message_destroy(struct message *m)
{
    buf_free(&m->text);
    mem_free(m->fields);
    mem_free(m->parser);
    *m = (struct message){ 0 };
}
