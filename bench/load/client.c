/* A load client that is never the limit: one epoll thread opens streams and finds each delta's send time in the bytes.
 *
 * client --port P [--host H] [--path /v1/chat/completions] [--model flat:100] [--body TEXT|@FILE] [--header "K: V"]...
 *        [--streams N] (--for SECONDS | --requests M) [--ramp SECONDS] [--warmup SECONDS] [--think MS] [--timeout SECONDS]
 *        [--json] [--expect N] [--marker WORD] [--leave-after K] [--leave-ms MS] [--get] [--paths FILE] [--ends WORD] [--prompt]
 *
 * --streams     connections, each with one request after the other
 * --for         until this long after the ramp and the warm-up; what is still open then is closed and is no error
 * --requests    in all, then the end
 * --ramp        connections open evenly over this time
 * --warmup      not measured, after the ramp
 * --think       pause between the requests of a connection
 * --timeout     a stream without a byte for this long is an error (default 20)
 * --json        requests do not ask for a stream
 * --expect      chunks in each complete answer: any other number is an error
 * --leave-after close the socket after K chunks; --leave-ms: this long after the request. Each moment is printed.
 * --get         requests are GETs without a body, and any whole answer is a good one
 * --paths       a path in each line: the request with the number n goes to the n-th of them, and round again
 * --ends        a whole answer has this word instead of finish_reason and [DONE]; stamps after it repeat, and do not count
 * --prompt      runs before other clients on its core: for one that only measures how long answers take
 * SIGTERM ends it early, with its report.
 * In --body, %MARKER% stands for the request's own marker (<word>-<number>), %MODEL% for the model, and %STREAM% is
 * false with --json, and without it true, followed by the options that ask for usage.
 *
 * Prints one JSON object. Latency is the time from the stamp to the return of the recv that brought it, for chunks
 * in the measured time; first-token times, of every stream, count from the send of the request to the first stamp, and
 * answer times, in the measured time, to the last byte of the answer.
 */
#include "common.h"

#define READ 262144
#define HEAD 4096
#define TAIL 1536
#define CARRY (STAMP_LEN - 1)

/* ---- histogram: 128 linear steps for each power of two, so the error stays below 1% ---- */

#define STEP_BITS 7
#define BUCKETS ((65 - STEP_BITS) << STEP_BITS)

struct histogram {
    int64_t count, max, sum;
    int64_t at[BUCKETS];
};

static void histogram_add(struct histogram *h, int64_t value) {
    uint64_t v = value < 0 ? 0 : (uint64_t)value;
    int shift = 63 - __builtin_clzll(v | 1) - STEP_BITS;
    if (shift < 0) shift = 0;
    h->at[((uint64_t)shift << STEP_BITS) + (v >> shift)]++;
    h->count++;
    h->sum += value;
    if (value > h->max) h->max = value;
}

static double histogram_us(const struct histogram *h, double share) {
    int64_t rank = (int64_t)(share * (double)h->count + 0.5), seen = 0;
    if (rank < 1) rank = 1;
    for (int i = 0; i < BUCKETS; i++) {
        seen += h->at[i];
        if (seen < rank) continue;
        int shift = (i >> STEP_BITS) - 1;
        if (shift < 0) shift = 0;
        double low = (double)((uint64_t)(i - (shift << STEP_BITS)) << shift), width = (double)(1ULL << shift);
        return (low + (shift ? width / 2 : 0)) / 1e3;
    }
    return 0;
}

/* ---- options and totals ---- */

static struct {
    const char *host, *path, *model, *body, *marker, *ends;
    const char **paths;
    char headers[4096];
    int port;
    int64_t streams, requests, expect, leave_after, path_count;
    int64_t length, ramp, warmup, think, timeout, leave_ms; /* ns */
    bool json, get, prompt;
} opt = {.host = "127.0.0.1", .path = "/v1/chat/completions", .model = "flat:100", .marker = "m", .streams = 1,
         .expect = -1, .leave_after = -1, .leave_ms = -1, .timeout = 20 * SECOND};

static struct {
    int64_t issued, answered, answered_measured, chunks, chunks_measured, bytes, left, finished, done;
    int64_t connect, status, cut, ending, count, timeout; /* errors */
    char sample[256];
    int sample_status;
} total;

static struct histogram latency, first, whole_answer;
static int64_t started, measure_from, measure_to, last_byte;
static char *leaves;
static size_t leaves_len, leaves_room;

enum step { CLOSED, CONNECTING, WAITING, ANSWERING, THINKING, FINISHED };
enum framing { UNTIL_CLOSE, LENGTH, CHUNK_SIZE, CHUNK_DATA, CHUNK_END, TRAILER };

struct conn {
    int fd;
    enum step step;
    struct timer timer;
    int64_t number, sent_at, seen_at, chunks;
    enum framing framing;
    int64_t remaining; /* of the body, or of the chunk */
    int status;
    bool keep, got_first, line_empty, ended;
    char head[HEAD], tail[TAIL], carry[CARRY];
    int head_len, tail_len, carry_len;
};

static struct conn *conns;
static struct heap timers;
static struct sockaddr_in server;
static int epoll;
static int64_t unfinished;
static char buffer[CARRY + READ];

static void conn_next(struct conn *c);

/* ---- sending ---- */

static void append(char *to, size_t room, size_t *len, const char *text, size_t n) {
    if (*len + n >= room) {
        fprintf(stderr, "request too large\n");
        exit(2);
    }
    memcpy(to + *len, text, n);
    *len += n;
}

/* The body with %MARKER% and %MODEL% filled in. */
static size_t write_body(char *to, size_t room, int64_t number) {
    const char *stream = opt.json ? "false" : "true,\"stream_options\":{\"include_usage\":true}";
    char marker[80];
    size_t len = 0;
    snprintf(marker, sizeof marker, "%s-%lld", opt.marker, (long long)number);
    for (const char *at = opt.body; *at;) {
        const char *hole = strchr(at, '%');
        if (!hole) hole = at + strlen(at);
        append(to, room, &len, at, (size_t)(hole - at));
        at = hole;
        if (!strncmp(at, "%MARKER%", 8)) append(to, room, &len, marker, strlen(marker)), at += 8;
        else if (!strncmp(at, "%MODEL%", 7)) append(to, room, &len, opt.model, strlen(opt.model)), at += 7;
        else if (!strncmp(at, "%STREAM%", 8)) append(to, room, &len, stream, strlen(stream)), at += 8;
        else if (*at) append(to, room, &len, at++, 1);
    }
    return len;
}

static void conn_drop(struct conn *c) {
    if (c->fd >= 0) close(c->fd);
    c->fd = -1;
    c->step = CLOSED;
    timer_unset(&timers, &c->timer);
}

static void conn_fail(struct conn *c, int64_t *kind) {
    ++*kind;
    conn_drop(c);
    timer_set(&timers, &c->timer, now_ns() + SECOND / 100); /* a refusing server is not hammered */
}

static void connect_failed(struct conn *c) {
    total.issued++; /* so that a dead server ends a run of --requests too */
    conn_fail(c, &total.connect);
}

static void send_request(struct conn *c) {
    static char body[1 << 20], request[(1 << 20) + 8192];
    c->number = total.issued++;
    size_t n = opt.get ? 0 : write_body(body, sizeof body, c->number);
    const char *path = opt.path_count ? opt.paths[c->number % opt.path_count] : opt.path;
    int h = snprintf(request, 8192, "%s %s HTTP/1.1\r\nHost: %s:%d\r\n%s", opt.get ? "GET" : "POST", path, opt.host, opt.port,
                     opt.headers);
    if (!opt.get) h += snprintf(request + h, 200, "Content-Type: application/json\r\nContent-Length: %zu\r\n", n);
    h += snprintf(request + h, 8, "\r\n");
    memcpy(request + h, body, n);
    c->step = WAITING;
    c->head_len = c->tail_len = c->carry_len = 0;
    c->chunks = 0;
    c->got_first = c->ended = false;
    c->sent_at = c->seen_at = now_ns();
    ssize_t took = send(c->fd, request, (size_t)h + n, 0); /* requests are small: a fresh socket takes one whole */
    if (took != h + (ssize_t)n) conn_fail(c, &total.cut);
    else if (opt.leave_ms >= 0) timer_set(&timers, &c->timer, c->sent_at + opt.leave_ms);
}

static void conn_open(struct conn *c) {
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (c->fd < 0) die("socket");
    no_delay(c->fd);
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.ptr = c};
    c->step = CONNECTING;
    c->seen_at = now_ns();
    if (connect(c->fd, (struct sockaddr *)&server, sizeof server) && errno != EINPROGRESS) connect_failed(c);
    else if (epoll_ctl(epoll, EPOLL_CTL_ADD, c->fd, &event)) die("epoll_ctl");
}

static bool more_to_ask(void) {
    return opt.requests ? total.issued < opt.requests : now_ns() < measure_to;
}

/* The connection is free: ask again, open, or be done. */
static void conn_next(struct conn *c) {
    if (!more_to_ask()) {
        conn_drop(c);
        c->step = FINISHED;
        unfinished--;
    } else if (c->fd < 0) {
        conn_open(c);
    } else {
        send_request(c);
    }
}

static void conn_rest(struct conn *c) {
    if (c->fd >= 0) c->step = THINKING;
    if (opt.think) timer_set(&timers, &c->timer, now_ns() + opt.think);
    else conn_next(c);
}

static void leave(struct conn *c) {
    int64_t at = now_ns();
    if (leaves_len + 256 > leaves_room) {
        leaves_room = leaves_room ? 2 * leaves_room : 65536;
        leaves = must(realloc(leaves, leaves_room));
    }
    int n = snprintf(leaves + leaves_len, 256, "%s{\"marker\":\"%s-%lld\",\"at\":%lld,\"chunks\":%lld}", leaves_len ? "," : "",
                     opt.marker, (long long)c->number, (long long)at, (long long)c->chunks);
    leaves_len += (size_t)n;
    total.left++;
    conn_drop(c);
    conn_rest(c);
}

/* ---- receiving ---- */

static void found_stamp(struct conn *c, int64_t stamp, int64_t now) {
    c->chunks++;
    total.chunks++;
    if (now >= measure_from && now < measure_to) {
        histogram_add(&latency, now - stamp);
        total.chunks_measured++;
    }
    if (c->got_first) return;
    c->got_first = true;
    histogram_add(&first, now - c->sent_at);
}

/* Counts the stamps in [p, end) and keeps the end of the text where a stamp may have begun. */
static void scan(struct conn *c, const char *p, const char *end, int64_t now) {
    const char *start = p, *t, *upto = NULL;
    int64_t stamp;
    if (opt.ends && !c->ended) {
        const char *word = memmem(p, (size_t)(end - p), opt.ends, strlen(opt.ends));
        c->ended = word != NULL;
        if (word) upto = word;
    } else if (c->ended) {
        return;
    }
    if (upto) end = upto;
    while (p < end && (t = memchr(p, 'T', (size_t)(end - p)))) {
        if (end - t < STAMP_LEN - 1) break;
        p = t + 1;
        if (t == start || !strchr(" \"", t[-1]) || !parse_stamp_digits(t + 1, &stamp)) continue;
        found_stamp(c, stamp, now);
        start = p = t + STAMP_LEN - 1;
    }
    c->carry_len = end - start < CARRY ? (int)(end - start) : CARRY;
    memcpy(c->carry, end - c->carry_len, (size_t)c->carry_len);
}

/* Keeps the last bytes of the answer: they say how it ended. */
static void keep_tail(struct conn *c, const char *p, int64_t n) {
    if (n >= TAIL) {
        memcpy(c->tail, p + n - TAIL, TAIL);
        c->tail_len = TAIL;
        return;
    }
    int64_t keep = c->tail_len + n > TAIL ? TAIL - n : c->tail_len;
    memmove(c->tail, c->tail + c->tail_len - keep, (size_t)keep);
    memcpy(c->tail + keep, p, (size_t)n);
    c->tail_len = (int)(keep + n);
}

static bool said_finish(const struct conn *c) {
    static const char key[] = "\"finish_reason\":";
    const char *at = c->tail, *end = c->tail + c->tail_len;
    while ((at = memmem(at, (size_t)(end - at), key, sizeof key - 1))) {
        at += sizeof key - 1;
        while (at < end && *at == ' ') at++;
        if (end - at > 6 && !memcmp(at, "\"stop\"", 6)) return true;
    }
    return false;
}

static void answered(struct conn *c, int64_t now) {
    bool finish = said_finish(c), done = memmem(c->tail, (size_t)c->tail_len, "[DONE]", 6) != NULL;
    timer_unset(&timers, &c->timer);
    total.answered++;
    total.finished += finish;
    total.done += done;
    if (now >= measure_from && now < measure_to) {
        total.answered_measured++;
        histogram_add(&whole_answer, now - c->sent_at);
    }
    if (c->status != 200) {
        total.status++;
        if (!total.sample_status) {
            total.sample_status = c->status;
            int n = c->tail_len < 200 ? c->tail_len : 200;
            for (int i = 0; i < n; i++) {
                char ch = c->tail[i];
                total.sample[i] = ch < ' ' || ch == '"' || ch == '\\' || ch == 127 ? '\'' : ch;
            }
        }
    } else if (opt.ends ? !c->ended : !opt.get && (!finish || (!done && !opt.json))) {
        total.ending++;
    } else if (opt.expect >= 0 && c->chunks != opt.expect) {
        total.count++;
    }
    if (!c->keep) conn_drop(c);
    conn_rest(c);
}

static bool parse_head(struct conn *c, const char *end) {
    size_t n;
    const char *length;
    if (sscanf(c->head, "HTTP/1.%*d %d", &c->status) != 1) return false;
    c->keep = !header_says(c->head, end, "Connection", "close") && !strncmp(c->head, "HTTP/1.1", 8);
    if (header_says(c->head, end, "Transfer-Encoding", "chunked")) {
        c->framing = CHUNK_SIZE;
        c->remaining = 0;
        c->line_empty = true;
    } else if ((length = header(c->head, end, "Content-Length", &n))) {
        c->framing = LENGTH;
        c->remaining = atoll(length);
    } else {
        c->framing = UNTIL_CLOSE;
        c->keep = false;
    }
    c->step = ANSWERING;
    return true;
}

/* Gathers the head; gives how many of the bytes belonged to it, or -1 where it makes no sense. */
static int64_t take_head(struct conn *c, const char *p, int64_t n) {
    int before = c->head_len;
    int64_t room = HEAD - 1 - before, add = n < room ? n : room;
    memcpy(c->head + before, p, (size_t)add);
    c->head_len += (int)add;
    c->head[c->head_len] = 0;
    const char *end = memmem(c->head, (size_t)c->head_len, "\r\n\r\n", 4);
    if (!end) return add < n ? -1 : n;
    return parse_head(c, end) ? end + 4 - c->head - before : -1;
}

static inline int hex(char ch) {
    if (ch >= '0' && ch <= '9') return ch - '0';
    if (ch >= 'a' && ch <= 'f') return ch - 'a' + 10;
    if (ch >= 'A' && ch <= 'F') return ch - 'A' + 10;
    return -1;
}

/* Moves the text inside the chunks of [p, end) to `to`, and gives its end; `*whole` where the body is complete. */
static char *unwrap(struct conn *c, const char *p, const char *end, char *to, bool *whole) {
    while (p < end) {
        if (c->framing == CHUNK_DATA) {
            int64_t n = end - p < c->remaining ? end - p : c->remaining;
            memmove(to, p, (size_t)n);
            to += n;
            p += n;
            c->remaining -= n;
            if (!c->remaining) c->framing = CHUNK_END;
        } else if (c->framing == CHUNK_SIZE) {
            int digit = hex(*p);
            if (digit >= 0) c->remaining = c->remaining * 16 + digit;
            if (*p++ == '\n') c->framing = c->remaining ? CHUNK_DATA : TRAILER, c->line_empty = true;
        } else if (c->framing == CHUNK_END) {
            if (*p++ == '\n') c->framing = CHUNK_SIZE, c->remaining = 0;
        } else { /* TRAILER: lines up to an empty one */
            char ch = *p++;
            if (ch == '\n' && c->line_empty) {
                *whole = true;
                return to;
            }
            if (ch != '\r') c->line_empty = ch == '\n';
        }
    }
    return to;
}

/* One read's bytes, which stand in the buffer after the room for the carry. */
static void on_bytes(struct conn *c, char *p, int64_t n, int64_t now) {
    char *end = p + n;
    bool whole = false;
    total.bytes += n;
    c->seen_at = last_byte = now;
    if (c->step == WAITING) {
        int64_t head = take_head(c, p, n);
        if (head < 0) {
            conn_fail(c, &total.cut);
            return;
        }
        if (c->step != ANSWERING) return;
        p += head;
        whole = c->framing == LENGTH && !c->remaining;
    }
    if (c->step != ANSWERING) return;
    char *text = p, *text_end = end;
    if (c->framing >= CHUNK_SIZE) {
        text_end = unwrap(c, p, end, text, &whole);
    } else if (c->framing == LENGTH) {
        c->remaining -= end - p;
        whole = c->remaining <= 0;
    }
    keep_tail(c, text, text_end - text);
    memcpy(text - c->carry_len, c->carry, (size_t)c->carry_len);
    scan(c, text - c->carry_len, text_end, now);
    if (whole) answered(c, now);
    else if (opt.leave_after >= 0 && c->chunks >= opt.leave_after) leave(c);
}

static void on_readable(struct conn *c, bool ended) {
    for (int turn = 0; turn < 4; turn++) { /* then the others have their turn */
        int fd = c->fd;
        ssize_t n = recv(fd, buffer + CARRY, READ, 0);
        int64_t now = now_ns();
        if (n < 0 && errno == EAGAIN) return;
        if (n <= 0) {
            if (c->step == ANSWERING && c->framing == UNTIL_CLOSE && n == 0) answered(c, now);
            else if (c->step == THINKING) conn_drop(c), conn_rest(c); /* a kept connection may end between answers */
            else conn_fail(c, &total.cut);
            return;
        }
        on_bytes(c, buffer + CARRY, n, now);
        if (c->fd != fd || (n < READ && !ended)) return;
    }
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.ptr = c};
    epoll_ctl(epoll, EPOLL_CTL_MOD, c->fd, &event); /* says the edge again */
}

static void on_event(struct conn *c, uint32_t events) {
    if (c->fd < 0) return;
    if (c->step == CONNECTING) {
        if (events & (EPOLLERR | EPOLLHUP)) connect_failed(c);
        else if (events & EPOLLOUT) conn_next(c);
    } else if (events & (EPOLLIN | EPOLLRDHUP | EPOLLERR | EPOLLHUP)) {
        on_readable(c, events & (EPOLLRDHUP | EPOLLERR | EPOLLHUP));
    }
}

static void on_timer(struct conn *c) {
    timer_unset(&timers, &c->timer);
    if (c->step == WAITING || c->step == ANSWERING) leave(c);
    else conn_next(c);
}

static void end_stalled(int64_t now) {
    for (int64_t i = 0; i < opt.streams; i++) {
        struct conn *c = &conns[i];
        bool waits = c->step == CONNECTING || c->step == WAITING || c->step == ANSWERING;
        if (waits && now - c->seen_at > opt.timeout) conn_fail(c, &total.timeout);
    }
}

/* ---- start and report ---- */

static volatile sig_atomic_t told_to_end;

static void on_signal(int number) { told_to_end = number; }

static void run(void) {
    struct epoll_event events[512];
    int64_t next_check = started + SECOND;
    while (unfinished && !told_to_end) {
        int64_t now = now_ns(), until = next_check;
        if (timers.count && timers.at[1]->due < until) until = timers.at[1]->due;
        if (opt.length && measure_to < until) until = measure_to;
        int n = wait_events(epoll, events, 512, until);
        for (int i = 0; i < n; i++) on_event(events[i].data.ptr, events[i].events);
        now = now_ns();
        while (timers.count && timers.at[1]->due <= now) on_timer(OWNER(timers.at[1], struct conn, timer));
        if (now >= next_check) end_stalled(now), next_check = now + SECOND;
        if (opt.length && now >= measure_to) return;
    }
}

static void print_histogram(const char *name, const struct histogram *h) {
    printf("\"%s\":{\"count\":%lld,\"mean\":%.2f,\"p50\":%.2f,\"p90\":%.2f,\"p99\":%.2f,\"p999\":%.2f,\"max\":%.2f},", name,
           (long long)h->count, h->count ? (double)h->sum / (double)h->count / 1e3 : 0.0, histogram_us(h, .5),
           histogram_us(h, .9), histogram_us(h, .99), histogram_us(h, .999), (double)h->max / 1e3);
}

static void report(int64_t ended) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    double cpu = (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) + (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
    int64_t to = opt.length && ended > measure_to ? measure_to : ended;
    double seconds = (double)(to - measure_from) / 1e9;
    if (seconds <= 0) seconds = 1e-9;
    int64_t errors = total.connect + total.status + total.cut + total.ending + total.count + total.timeout;
    printf("{\"streams\":%lld,\"seconds\":%.4f,\"chunks\":%lld,\"chunks_per_second\":%.1f,\"chunks_all\":%lld,\"bytes\":%lld,",
           (long long)opt.streams, seconds, (long long)total.chunks_measured, (double)total.chunks_measured / seconds,
           (long long)total.chunks, (long long)total.bytes);
    printf("\"requests\":%lld,\"answered\":%lld,\"requests_per_second\":%.1f,\"ended_with_finish\":%lld,\"ended_with_done\":%lld,\"left\":%lld,",
           (long long)total.issued, (long long)total.answered, (double)total.answered_measured / seconds,
           (long long)total.finished, (long long)total.done, (long long)total.left);
    print_histogram("latency_us", &latency);
    print_histogram("ttft_us", &first);
    print_histogram("answer_us", &whole_answer);
    printf("\"errors\":%lld,\"error_kinds\":{\"connect\":%lld,\"status\":%lld,\"cut\":%lld,\"ending\":%lld,\"count\":%lld,\"timeout\":%lld},",
           (long long)errors, (long long)total.connect, (long long)total.status, (long long)total.cut, (long long)total.ending,
           (long long)total.count, (long long)total.timeout);
    if (total.sample_status) printf("\"first_error\":\"%d %s\",", total.sample_status, total.sample);
    if (opt.leave_after >= 0 || opt.leave_ms >= 0) printf("\"leaves\":[%.*s],", (int)leaves_len, leaves ? leaves : "");
    printf("\"cpu_seconds\":%.4f,\"wall_seconds\":%.4f}\n", cpu, (double)(ended - started) / 1e9);
}

static char *read_file(const char *name) {
    FILE *file = fopen(name, "rb");
    if (!file) die(name);
    char *text = must(calloc(1, 1 << 20));
    size_t n = fread(text, 1, (1 << 20) - 1, file);
    text[n] = 0;
    fclose(file);
    return text;
}

static void read_paths(const char *name) {
    for (char *line = strtok(read_file(name), "\n"); line; line = strtok(NULL, "\n")) {
        opt.paths = must(realloc(opt.paths, (size_t)(opt.path_count + 1) * sizeof *opt.paths));
        opt.paths[opt.path_count++] = line;
    }
}

static int64_t seconds_of(const char *text) { return (int64_t)(atof(text) * 1e9); }

static void parse_options(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        const char *name = argv[i], *value = i + 1 < argc ? argv[i + 1] : "";
        if (!strcmp(name, "--json") || !strcmp(name, "--get") || !strcmp(name, "--prompt")) {
            *(name[2] == 'j' ? &opt.json : name[2] == 'g' ? &opt.get : &opt.prompt) = true;
            continue;
        }
        i++;
        if (!strcmp(name, "--port")) opt.port = atoi(value);
        else if (!strcmp(name, "--host")) opt.host = value;
        else if (!strcmp(name, "--path")) opt.path = value;
        else if (!strcmp(name, "--paths")) read_paths(value);
        else if (!strcmp(name, "--ends")) opt.ends = value;
        else if (!strcmp(name, "--model")) opt.model = value;
        else if (!strcmp(name, "--body")) opt.body = *value == '@' ? read_file(value + 1) : value;
        else if (!strcmp(name, "--header")) {
            size_t n = strlen(opt.headers);
            snprintf(opt.headers + n, sizeof opt.headers - n, "%s\r\n", value);
        }
        else if (!strcmp(name, "--streams")) opt.streams = atoll(value);
        else if (!strcmp(name, "--for")) opt.length = seconds_of(value);
        else if (!strcmp(name, "--requests")) opt.requests = atoll(value);
        else if (!strcmp(name, "--ramp")) opt.ramp = seconds_of(value);
        else if (!strcmp(name, "--warmup")) opt.warmup = seconds_of(value);
        else if (!strcmp(name, "--think")) opt.think = seconds_of(value) / 1000;
        else if (!strcmp(name, "--timeout")) opt.timeout = seconds_of(value);
        else if (!strcmp(name, "--expect")) opt.expect = atoll(value);
        else if (!strcmp(name, "--marker")) opt.marker = value;
        else if (!strcmp(name, "--leave-after")) opt.leave_after = atoll(value);
        else if (!strcmp(name, "--leave-ms")) opt.leave_ms = seconds_of(value) / 1000;
        else {
            fprintf(stderr, "no such option: %s (see the top of client.c)\n", name);
            exit(2);
        }
    }
    if (!opt.port || opt.streams < 1 || !(opt.length || opt.requests)) {
        fprintf(stderr, "needs --port and --for or --requests\n");
        exit(2);
    }
    if (opt.body) return;
    opt.body = opt.json ? "{\"model\":\"%MODEL%\",\"user\":\"%MARKER%\",\"messages\":[{\"role\":\"user\",\"content\":\"Say something.\"}]}"
                        : "{\"model\":\"%MODEL%\",\"stream\":true,\"stream_options\":{\"include_usage\":true},\"user\":\"%MARKER%\","
                          "\"messages\":[{\"role\":\"user\",\"content\":\"Say something.\"}]}";
}

int main(int argc, char **argv) {
    parse_options(argc, argv);
    be_exact();
    if (!opt.prompt) sched_setscheduler(0, SCHED_BATCH, &(struct sched_param){0}); /* on the shared core the upstream finishes its tick first */
    signal(SIGTERM, on_signal);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    server.sin_family = AF_INET;
    server.sin_port = htons((uint16_t)opt.port);
    if (inet_pton(AF_INET, opt.host, &server.sin_addr) != 1) die("host");
    epoll = epoll_create1(EPOLL_CLOEXEC);
    conns = must(calloc((size_t)opt.streams, sizeof *conns));
    unfinished = opt.streams;
    started = now_ns();
    measure_from = started + opt.ramp + opt.warmup;
    measure_to = opt.length ? measure_from + opt.length : INT64_MAX;
    for (int64_t i = 0; i < opt.streams; i++) {
        conns[i].fd = -1;
        timer_set(&timers, &conns[i].timer, started + (opt.ramp ? opt.ramp * i / opt.streams : 0));
    }
    run();
    report(opt.length ? now_ns() : last_byte > measure_from ? last_byte : now_ns());
    return 0;
}
