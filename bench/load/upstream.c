/* An OpenAI-dialect upstream that is never the limit: one epoll thread, and each delta carries the time it was sent.
 *
 * The model's name says what is played:
 *   flat:<n>                n chunks as fast as the socket takes them
 *   words:<n>               the same with an English word before each stamp: the search index has more to do
 *   paced:<n>:<per_second>  n chunks at that rate; the first at once, the rest from a phase of the stream's own
 *   idle:<n>:<ms>           n chunks, one each <ms>
 *   json                    one chunk, or one JSON object where the request does not ask for a stream
 *   silent                  the headers, then nothing
 *   mute                    nothing at all
 * A request that does not ask for a stream gets one JSON completion at once, whatever n is.
 *
 * Where the model has no such name, the last `play=<name>` in the body says it (for servers that choose the model themselves).
 *
 * A request's marker is its header X-Bench-Marker, or its body field "user", or the last `marker=<word>` in its body (for
 * servers that write the body themselves). When a client goes before its answer is complete, the moment is kept:
 *   GET  /_control/stats             {"open", "active", "requests", "chunks_sent", "closed", "late_max_us", "late_mean_us"}
 *   GET  /_control/closes?after=<n>  {"next", "closes": [{"marker", "at", "chunks"}]}, `at` in ns of CLOCK_MONOTONIC
 *   POST /_control/reset             counts from zero (`next` goes on)
 * `late` is how far behind its own clock a paced chunk was sent: the instrument's own error.
 */
#include "common.h"

#define BLOCK 65536 /* bytes offered to a socket at once */
#define ROOM (BLOCK + 32768)
#define CLOSES 16384
/* Paced chunks that fall due within this many ns go out together, which saves wake-ups at 50,000/s. An odd number: work in
 * step with the kernel's own tick would never be seen by its sampling of busy cores. */
#define TICK 97000LL
#define MARKER 64

enum mode { FLAT, PACED, JSON, SILENT, MUTE };

struct play {
    enum mode mode;
    bool on, usage, words;
    int64_t left, sent, interval;
    char chunk[512]; /* one HTTP chunk with one event, to be patched with the stamp */
    size_t chunk_len, stamp_at;
    char id[40], model[80];
    long created;
};

struct conn {
    int fd;
    struct timer timer; /* next paced chunk */
    struct conn *next_ready, **ready_link;
    char *in, *out;
    size_t in_len, in_room, out_len, out_room;
    bool busy, last, full; /* answering; close after this answer; the socket takes no more for now */
    char marker[MARKER];
    struct play play;
};

struct close_seen {
    char marker[MARKER];
    int64_t at, chunks;
};

static struct {
    int64_t open, active, requests, chunks, closed, late_max, late_sum, late_count;
} stats;

static struct close_seen closes[CLOSES];
static int64_t closes_next;
/* Of 256 words drawn from so many, 127 differ: about as many as in a page of English. */
#define WORD 6
static const char words[] =
    "accept across action advice affect afford afraid agency agenda almost always amount animal annual "
    "answer anyone anyway appeal appear around arrive artist aspect assess assign assist assume attack "
    "attend author avenue backed barely battle beauty became become before behalf behind belief belong "
    "beside better beyond bishop border bottle bottom bought branch breath bridge bright broken budget "
    "burden bureau button camera cancer cannot carbon career castle casual caught center chance change "
    "charge choice choose church circle client closed coffee column combat coming common copper corner "
    "costly county couple course cotton create credit crisis custom damage danger dealer debate decade "
    "decide defeat defend define degree demand depend deputy desert design desire detail detect device "
    "differ dinner direct doctor dollar domain double driven driver during easily eating editor effect "
    "effort eighth either eleven emerge empire employ ending energy engage engine enough ensure entire "
    "entity equity escape estate ethnic exceed except excess expand expect expert export extend extent "
    "fabric facing factor failed fairly ";
#define WORDS ((int64_t)(sizeof words / (WORD + 1)))

static struct heap timers;
static struct conn *ready;
static int epoll;
static uint64_t serial;
static char scratch[ROOM];

/* ---- output ---- */

static void out_add(struct conn *c, const void *bytes, size_t n) {
    if (c->out_len + n > c->out_room) {
        c->out_room = (c->out_len + n) * 2;
        c->out = must(realloc(c->out, c->out_room));
    }
    memcpy(c->out + c->out_len, bytes, n);
    c->out_len += n;
}

static void out_set(struct conn *c, const char *bytes, size_t n) {
    c->out_len = 0;
    if (n) out_add(c, bytes, n);
}

static void answer(struct conn *c, int status, const char *body, size_t n) {
    char head[256];
    const char *reason = status == 200 ? "OK" : status == 404 ? "Not Found" : "Bad Request";
    int h = snprintf(head, sizeof head, "HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n%s\r\n",
                     status, reason, n, c->last ? "Connection: close\r\n" : "");
    out_add(c, head, (size_t)h);
    out_add(c, body, n);
}

/* Wraps an event's text as one HTTP chunk. */
static size_t wrap(char *to, size_t room, const char *event) {
    int n = snprintf(to, room, "%zx\r\n%s\r\n", strlen(event), event);
    return (size_t)n < room ? (size_t)n : room - 1;
}

static size_t event_chunk(char *to, size_t room, const struct play *p, const char *delta, const char *finish) {
    char event[480];
    snprintf(event, sizeof event,
             "data: {\"id\":\"%s\",\"object\":\"chat.completion.chunk\",\"created\":%ld,\"model\":\"%s\","
             "\"choices\":[{\"index\":0,\"delta\":{%s},\"finish_reason\":%s}]}\n\n",
             p->id, p->created, p->model, delta, finish);
    return wrap(to, room, event);
}

static size_t usage_text(char *to, size_t room, int64_t output) {
    return (size_t)snprintf(to, room, "\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":%lld,\"total_tokens\":%lld}",
                            (long long)output, (long long)(output + 9));
}

static size_t write_tail(char *to, size_t room, const struct play *p, int64_t output) {
    size_t n = event_chunk(to, room, p, "", "\"stop\"");
    if (p->usage) {
        char usage[128], event[480];
        usage_text(usage, sizeof usage, output);
        snprintf(event, sizeof event,
                 "data: {\"id\":\"%s\",\"object\":\"chat.completion.chunk\",\"created\":%ld,\"model\":\"%s\",\"choices\":[],%s}\n\n",
                 p->id, p->created, p->model, usage);
        n += wrap(to + n, room - n, event);
    }
    n += wrap(to + n, room - n, "data: [DONE]\n\n");
    memcpy(to + n, "0\r\n\r\n", 5);
    return n + 5;
}

static void ready_add(struct conn *c) {
    if (c->ready_link) return;
    c->next_ready = ready;
    if (ready) ready->ready_link = &c->next_ready;
    ready = c;
    c->ready_link = &ready;
}

static void ready_drop(struct conn *c) {
    if (!c->ready_link) return;
    *c->ready_link = c->next_ready;
    if (c->next_ready) c->next_ready->ready_link = c->ready_link;
    c->ready_link = NULL;
}

static void play_end(struct conn *c) {
    if (!c->play.on) return;
    c->play.on = false;
    stats.active--;
    timer_unset(&timers, &c->timer);
    ready_drop(c);
}

static void conn_close(struct conn *c, bool gone) {
    if (c->busy && gone) {
        struct close_seen *seen = &closes[closes_next++ % CLOSES];
        seen->at = now_ns();
        seen->chunks = c->play.sent;
        memcpy(seen->marker, c->marker, MARKER);
        stats.closed++;
    }
    play_end(c);
    close(c->fd);
    stats.open--;
    free(c->in);
    free(c->out);
    free(c);
}

/* How many chunks may go now: all of a flat play, those that are due of a paced one. */
static int64_t play_due(struct conn *c, int64_t now) {
    struct play *p = &c->play;
    if (!p->on || p->mode == SILENT || p->mode == MUTE) return 0;
    int64_t n = p->left;
    if (p->mode == PACED) {
        if (now < c->timer.due) return 0;
        int64_t due = 1 + (now - c->timer.due) / p->interval;
        if (due < n) n = due;
    }
    int64_t fit = BLOCK / (int64_t)p->chunk_len;
    return n < fit ? n : fit;
}

/* Writes the word before the stamp: another one each time, and others in the next answer. */
static void write_word(char *stamp, int64_t n) {
    uint64_t drawn = (serial * 1000003 + (uint64_t)n) * 0x9E3779B97F4A7C15;
    memcpy(stamp - 2 - WORD, words + (int64_t)((drawn >> 33) % WORDS) * (WORD + 1), WORD);
}

/* Books `n` chunks as sent, and sets the paced play's next moment. */
static void play_sent(struct conn *c, int64_t n, int64_t now) {
    struct play *p = &c->play;
    p->left -= n;
    p->sent += n;
    stats.chunks += n;
    if (p->mode != PACED || !n) return;
    int64_t late = now - c->timer.due;
    if (p->sent > n) {
        if (late > stats.late_max) stats.late_max = late;
        stats.late_sum += late;
        stats.late_count++;
        timer_set(&timers, &c->timer, c->timer.due + n * p->interval);
    } else {
        double phase = (double)serial * 0.6180339887498949;
        timer_set(&timers, &c->timer, now + (int64_t)((double)p->interval * (phase - (double)(int64_t)phase)));
    }
}

/* Offers the socket what waits, the chunks that are due and, after the last, the ending, in one send.
 * Of what the socket does not take only the rest of a begun chunk is kept: the others are made, and stamped, later.
 * False: the connection is gone. */
static bool pump(struct conn *c) {
    struct play *p = &c->play;
    bool fits = c->out_len < ROOM - BLOCK - 4096;
    size_t before = c->out_len, len = before;
    int64_t now = now_ns(), n = fits ? play_due(c, now) : 0;
    char *from = c->out;
    bool ending = false;

    if (n || (fits && p->on && p->left == 0)) {
        char stamp[STAMP_DIGITS];
        write_stamp_digits(stamp, now);
        if (before) memcpy(scratch, c->out, before);
        for (int64_t i = 0; i < n; i++, len += p->chunk_len) {
            memcpy(scratch + len, p->chunk, p->chunk_len);
            memcpy(scratch + len + p->stamp_at, stamp, STAMP_DIGITS);
            if (p->words) write_word(scratch + len + p->stamp_at, p->sent + i);
        }
        ending = p->left == n;
        if (ending) len += write_tail(scratch + len, ROOM - len, p, p->sent + n);
        from = scratch;
    }
    if (!len) return true;

    ssize_t took = send(c->fd, from, len, 0);
    if (took < 0 && errno != EAGAIN) {
        conn_close(c, true);
        return false;
    }
    size_t done = took < 0 ? 0 : (size_t)took;
    c->full = done < len;
    if (from == c->out) {
        memmove(c->out, c->out + done, len - done);
        c->out_len = len - done;
        return true;
    }
    size_t whole = before + (size_t)n * p->chunk_len;
    if (done < before) {
        out_set(c, scratch + done, before - done);
    } else if (done < whole) {
        int64_t begun = (int64_t)((done - before + p->chunk_len - 1) / p->chunk_len);
        size_t border = before + (size_t)begun * p->chunk_len;
        out_set(c, scratch + done, border - done);
        play_sent(c, begun, now);
    } else {
        play_sent(c, n, now);
        if (ending) play_end(c);
        out_set(c, scratch + done, len - done);
    }
    return true;
}

/* ---- requests ---- */

/* The text after `"key":` in a JSON body, by plain search: escaped quotes in a text never look like a key. */
static const char *json_value(const char *body, const char *key) {
    char quoted[40];
    size_t n = (size_t)snprintf(quoted, sizeof quoted, "\"%s\"", key);
    for (const char *at = body; (at = strstr(at, quoted));) {
        at += n;
        const char *value = at + strspn(at, " \t\r\n");
        if (*value == ':') return value + 1 + strspn(value + 1, " \t\r\n");
    }
    return NULL;
}

static void copy_word(char *to, size_t room, const char *from, const char *from_end) {
    size_t n = 0;
    for (; from < from_end && n + 1 < room; from++) {
        char ch = *from;
        bool plain = (ch >= '0' && ch <= '9') || (ch >= 'A' && ch <= 'Z') || (ch >= 'a' && ch <= 'z') || strchr(":._/-", ch);
        if (!ch || !plain) break;
        to[n++] = ch;
    }
    to[n] = 0;
}

static void json_word(char *to, size_t room, const char *body, const char *key) {
    const char *value = json_value(body, key);
    to[0] = 0;
    if (value && *value == '"') copy_word(to, room, value + 1, value + 1 + strlen(value + 1));
}

/* The word after the last `name` in a body: a server may have put other texts, or earlier ones, before it. */
static void last_word(char *to, size_t room, const char *body, const char *name) {
    for (const char *at = body; (at = strstr(at, name));) {
        at += strlen(name);
        copy_word(to, room, at, at + strlen(at));
    }
}

static bool json_true(const char *body, const char *key) {
    const char *value = json_value(body, key);
    return value && !strncmp(value, "true", 4);
}

static void find_marker(struct conn *c, const char *head, const char *head_end, const char *body) {
    size_t n;
    const char *value = header(head, head_end, "X-Bench-Marker", &n);
    c->marker[0] = 0;
    if (value) {
        copy_word(c->marker, MARKER, value, value + n);
        return;
    }
    json_word(c->marker, MARKER, body, "user");
    if (!c->marker[0]) last_word(c->marker, MARKER, body, "marker=");
}

static bool play_named(struct play *p, const char *name) {
    long long n = 1, rate = 0;
    if (sscanf(name, "flat:%lld", &n) == 1) p->mode = FLAT;
    else if (sscanf(name, "words:%lld", &n) == 1) p->mode = FLAT, p->words = true;
    else if (sscanf(name, "paced:%lld:%lld", &n, &rate) == 2 && rate > 0) p->mode = PACED, p->interval = SECOND / rate;
    else if (sscanf(name, "idle:%lld:%lld", &n, &rate) == 2 && rate > 0) p->mode = PACED, p->interval = rate * 1000000;
    else if (!strcmp(name, "json")) p->mode = JSON;
    else if (!strcmp(name, "silent")) p->mode = SILENT;
    else if (!strcmp(name, "mute")) p->mode = MUTE;
    else return false;
    p->left = n;
    return n >= 0;
}

static void answer_json(struct conn *c) {
    char body[1024], usage[128], stamp[STAMP_DIGITS + 1] = {0};
    struct play *p = &c->play;
    write_stamp_digits(stamp, now_ns());
    usage_text(usage, sizeof usage, 1);
    int n = snprintf(body, sizeof body,
                     "{\"id\":\"%s\",\"object\":\"chat.completion\",\"created\":%ld,\"model\":\"%s\",\"choices\":[{\"index\":0,"
                     "\"message\":{\"role\":\"assistant\",\"content\":\" T%s\"},\"finish_reason\":\"stop\"}],%s}",
                     p->id, p->created, p->model, stamp, usage);
    p->sent = 1;
    stats.chunks++;
    answer(c, 200, body, (size_t)n);
}

static void play_begin(struct conn *c) {
    static const char head[] = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\n"
                               "Transfer-Encoding: chunked\r\n";
    static const char zeros[] = " T000000000000000000";
    struct play *p = &c->play;
    char role[512], delta[64];
    p->on = true;
    stats.active++;
    if (p->mode == MUTE) return;
    out_add(c, head, sizeof head - 1);
    out_add(c, c->last ? "Connection: close\r\n\r\n" : "\r\n", c->last ? 21 : 2);
    if (p->mode == SILENT) return;
    out_add(c, role, event_chunk(role, sizeof role, p, "\"role\":\"assistant\",\"content\":\"\"", "null"));
    snprintf(delta, sizeof delta, "\"content\":\"%s%s\"", p->words ? " ______" : "", zeros);
    p->chunk_len = event_chunk(p->chunk, sizeof p->chunk, p, delta, "null");
    p->stamp_at = (size_t)(strstr(p->chunk, zeros) + 2 - p->chunk);
    c->timer.due = 0;
    if (p->mode == PACED) timer_set(&timers, &c->timer, now_ns());
}

static void complete(struct conn *c, const char *head, const char *head_end, const char *body) {
    static const char unknown[] = "{\"error\":{\"message\":\"No such model here.\",\"type\":\"invalid_request_error\","
                                  "\"code\":\"model_not_found\",\"param\":\"model\"}}";
    struct play *p = &c->play;
    memset(p, 0, offsetof(struct play, chunk));
    json_word(p->model, sizeof p->model, body, "model");
    find_marker(c, head, head_end, body);
    stats.requests++;
    if (!play_named(p, p->model)) last_word(p->model, sizeof p->model, body, "play=");
    if (!play_named(p, p->model)) {
        answer(c, 404, unknown, sizeof unknown - 1);
        return;
    }
    p->created = (long)time(NULL);
    p->usage = json_true(body, "include_usage");
    snprintf(p->id, sizeof p->id, "chatcmpl-%024llx", (unsigned long long)++serial);
    bool stream = json_true(body, "stream");
    if (!stream && p->mode != SILENT && p->mode != MUTE) answer_json(c);
    else play_begin(c);
}

static void answer_models(struct conn *c) {
    static const char *names[] = {"flat:100", "flat:1000", "paced:1000:50", "idle:100:1000", "json", "silent", "mute"};
    char body[1024] = "{\"object\":\"list\",\"data\":[";
    size_t n = strlen(body);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        n += (size_t)snprintf(body + n, sizeof body - n,
                              "%s{\"id\":\"%s\",\"object\":\"model\",\"created\":1700000000,\"owned_by\":\"bench\"}",
                              i ? "," : "", names[i]);
    n += (size_t)snprintf(body + n, sizeof body - n, "]}");
    answer(c, 200, body, n);
}

static void answer_stats(struct conn *c) {
    char body[512];
    double mean = stats.late_count ? (double)stats.late_sum / (double)stats.late_count / 1e3 : 0;
    int n = snprintf(body, sizeof body,
                     "{\"open\":%lld,\"active\":%lld,\"requests\":%lld,\"chunks_sent\":%lld,\"closed\":%lld,"
                     "\"late_max_us\":%.1f,\"late_mean_us\":%.1f}",
                     (long long)stats.open, (long long)stats.active, (long long)stats.requests, (long long)stats.chunks,
                     (long long)stats.closed, (double)stats.late_max / 1e3, mean);
    answer(c, 200, body, (size_t)n);
}

static void answer_closes(struct conn *c, const char *target) {
    const char *after = strstr(target, "after=");
    int64_t from = after ? atoll(after + 6) : 0, oldest = closes_next > CLOSES ? closes_next - CLOSES : 0;
    if (from < oldest) from = oldest;
    int64_t count = closes_next > from ? closes_next - from : 0;
    char *body = must(malloc((size_t)count * (MARKER + 96) + 128));
    size_t n = (size_t)sprintf(body, "{\"next\":%lld,\"closes\":[", (long long)closes_next);
    for (int64_t i = from; i < closes_next; i++) {
        const struct close_seen *seen = &closes[i % CLOSES];
        n += (size_t)sprintf(body + n, "%s{\"marker\":\"%s\",\"at\":%lld,\"chunks\":%lld}", i > from ? "," : "", seen->marker,
                             (long long)seen->at, (long long)seen->chunks);
    }
    n += (size_t)sprintf(body + n, "]}");
    answer(c, 200, body, n);
    free(body);
}

static void reset_stats(void) {
    stats.requests = stats.chunks = stats.closed = stats.late_max = stats.late_sum = stats.late_count = 0;
}

static void route(struct conn *c, char *head, char *head_end, const char *body) {
    static const char nowhere[] = "{\"error\":{\"message\":\"No such path.\",\"type\":\"not_found\",\"code\":\"not_found\",\"param\":null}}";
    char method[8] = "", target[256] = "";
    sscanf(head, "%7s %255s", method, target);
    c->last = header_says(head, head_end, "Connection", "close");
    c->busy = true;
    if (!strcmp(method, "POST") && strstr(target, "/chat/completions")) complete(c, head, head_end, body);
    else if (!strncmp(target, "/_control/stats", 15)) answer_stats(c);
    else if (!strncmp(target, "/_control/closes", 16)) answer_closes(c, target);
    else if (!strncmp(target, "/_control/reset", 15) && !strcmp(method, "POST")) reset_stats(), answer(c, 200, "{}", 2);
    else if (!strcmp(target, "/v1/models")) answer_models(c);
    else if (!strcmp(target, "/health")) answer(c, 200, "{}", 2);
    else answer(c, 404, nowhere, sizeof nowhere - 1);
}

/* Finds the end of a chunked body in [from, end) and joins its chunks in place; 0: not complete, -1: broken. */
static int join_chunks(char *from, char *end, char **body_end, char **rest) {
    char *check = from, *to = from;
    for (int pass = 0; pass < 2; pass++) { /* first only look, then move */
        for (check = from;;) {
            char *line = memmem(check, (size_t)(end - check), "\r\n", 2), *digits;
            if (!line) return 0;
            unsigned long n = strtoul(check, &digits, 16);
            if (digits == check || n > (1UL << 30)) return -1;
            check = line + 2;
            if (n == 0) break;
            if ((size_t)(end - check) < n + 2) return 0;
            if (pass) memmove(to, check, n), to += n;
            check += n + 2;
        }
        char *stop = check;
        for (;;) { /* trailers, to the empty line */
            char *line = memmem(stop, (size_t)(end - stop), "\r\n", 2);
            if (!line) return 0;
            bool empty = line == stop;
            stop = line + 2;
            if (empty) break;
        }
        check = stop;
    }
    *body_end = to;
    *rest = check;
    return 1;
}

/* Takes one whole request out of the input and answers it; 0: not whole yet, 1: taken, -1: broken. */
static int take_request(struct conn *c) {
    if (!c->in_len) return 0;
    char *end = c->in + c->in_len, *head_end = memmem(c->in, c->in_len, "\r\n\r\n", 4);
    if (!head_end) return c->in_len > 65536 ? -1 : 0;
    char *body = head_end + 4, *body_end = body, *rest = body;
    size_t n;
    const char *length = header(c->in, head_end, "Content-Length", &n);
    if (header_says(c->in, head_end, "Transfer-Encoding", "chunked")) {
        int joined = join_chunks(body, end, &body_end, &rest);
        if (joined <= 0) return joined;
    } else if (length) {
        unsigned long size = strtoul(length, NULL, 10);
        if (size > (1UL << 30)) return -1;
        if ((size_t)(end - body) < size) return 0;
        body_end = rest = body + size;
    }
    char kept = *body_end; /* a zero ends the body for the searches; the input always has one byte to spare */
    *body_end = 0;
    route(c, c->in, head_end, body);
    *body_end = kept;
    c->in_len = (size_t)(end - rest);
    memmove(c->in, rest, c->in_len);
    return 1;
}

/* Goes on with the connection as far as the socket and the play allow. False: it is gone. */
static bool advance(struct conn *c) {
    for (;;) {
        if (!c->busy) {
            int taken = take_request(c);
            if (taken < 0) {
                conn_close(c, false);
                return false;
            }
            if (!taken) return true;
        }
        if (!c->full && !pump(c)) return false;
        if (c->full) return true;
        if (c->play.on) {
            if (c->play.mode == FLAT || c->play.mode == JSON) ready_add(c);
            return true;
        }
        if (c->out_len) continue;
        c->busy = false;
        if (c->last) {
            conn_close(c, false);
            return false;
        }
    }
}

/* ---- the loop ---- */

/* Reads all there is. False: the client has gone. */
static bool fill(struct conn *c) {
    for (;;) {
        if (c->in_len + 4097 > c->in_room) {
            c->in_room = c->in_room ? 2 * c->in_room : 8192;
            c->in = must(realloc(c->in, c->in_room));
        }
        size_t room = c->in_room - c->in_len - 1;
        ssize_t n = recv(c->fd, c->in + c->in_len, room, 0);
        if (n == 0) return false;
        if (n < 0) return errno == EAGAIN || errno == EINTR;
        c->in_len += (size_t)n;
        if ((size_t)n < room) return true;
    }
}

static void on_event(struct conn *c, uint32_t events) {
    if (events & EPOLLOUT) c->full = false;
    if (events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) {
        bool here = fill(c) && !(events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR));
        if (!here) {
            conn_close(c, true);
            return;
        }
    }
    advance(c);
}

static void accept_all(int listener) {
    for (;;) {
        int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) return;
        no_delay(fd);
        struct conn *c = must(calloc(1, sizeof *c));
        c->fd = fd;
        stats.open++;
        struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.ptr = c};
        if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event)) die("epoll_ctl");
    }
}

static void run_due(void) {
    int64_t now = now_ns();
    while (timers.count && timers.at[1]->due <= now) {
        struct conn *c = OWNER(timers.at[1], struct conn, timer);
        if (c->full) timer_unset(&timers, &c->timer); /* goes on, late, when the socket takes more */
        else advance(c);
    }
}

static void run_ready(void) {
    struct conn *c = ready;
    while (c) {
        struct conn *next = c->next_ready;
        ready_drop(c);
        advance(c); /* puts itself back where there is more to send */
        c = next;
    }
}

static int listen_at(const char *host, int port) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), one = 1;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    socklen_t size = sizeof at;
    inet_pton(AF_INET, host, &at.sin_addr);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, (struct sockaddr *)&at, sizeof at) || listen(fd, 4096)) die("listen");
    getsockname(fd, (struct sockaddr *)&at, &size);
    printf("%d\n", ntohs(at.sin_port));
    fflush(stdout);
    return fd;
}

int main(int argc, char **argv) {
    const char *host = "127.0.0.1";
    int port = 0;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (!strcmp(argv[i], "--port")) port = atoi(argv[i + 1]);
        else if (!strcmp(argv[i], "--host")) host = argv[i + 1];
        else {
            fprintf(stderr, "usage: upstream [--host 127.0.0.1] [--port 0]\n");
            return 2;
        }
    }
    be_exact();
    prctl(PR_SET_PDEATHSIG, SIGTERM); /* an upstream never outlives the bench that started it */
    int listener = listen_at(host, port);
    epoll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL}, events[256];
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &event)) die("epoll_ctl");
    for (;;) {
        int64_t until = ready ? 0 : timers.count ? (timers.at[1]->due / TICK + 1) * TICK : -1;
        int n = wait_events(epoll, events, 256, until);
        for (int i = 0; i < n; i++) {
            if (events[i].data.ptr) on_event(events[i].data.ptr, events[i].events);
            else accept_all(listener);
        }
        run_due();
        run_ready();
    }
}
