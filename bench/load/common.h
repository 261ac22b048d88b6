/* What the upstream and the load client share: the clock, the stamp in each delta, timers, and waiting for sockets. */
#ifndef BENCH_COMMON_H
#define BENCH_COMMON_H

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000LL

static inline int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * SECOND + t.tv_nsec;
}

static void die(const char *what) {
    perror(what);
    exit(2);
}

static void *must(void *memory) {
    if (!memory) die("memory");
    return memory;
}

/* ---- the stamp: " T" and 18 digits of nanoseconds, of one width so that a template can be patched ---- */

#define STAMP_DIGITS 18
#define STAMP_LEN (2 + STAMP_DIGITS)

static inline void write_stamp_digits(char *at, int64_t ns) {
    for (int i = STAMP_DIGITS - 1; i >= 0; i--, ns /= 10) at[i] = (char)('0' + ns % 10);
}

/* Eight digits at once; false where one of the bytes is no digit. */
static inline bool parse_8(const char *at, uint64_t *value) {
    uint64_t v;
    memcpy(&v, at, 8);
    v ^= 0x3030303030303030ULL;
    if (((v + 0x7676767676767676ULL) | v) & 0x8080808080808080ULL) return false;
    v = v * 10 + (v >> 8);
    *value = (((v & 0x000000FF000000FFULL) * 0x000F424000000064ULL) +
              (((v >> 16) & 0x000000FF000000FFULL) * 0x0000271000000001ULL)) >> 32;
    return true;
}

static inline bool parse_stamp_digits(const char *at, int64_t *ns) {
    uint64_t high, low;
    unsigned a = (unsigned char)at[0] - '0', b = (unsigned char)at[1] - '0';
    if (a > 9 || b > 9 || !parse_8(at + 2, &high) || !parse_8(at + 10, &low)) return false;
    *ns = (int64_t)((a * 10 + b) * 10000000000000000ULL + high * 100000000ULL + low);
    return true;
}

/* ---- timers: a binary heap of the moments at which connections want to be called ---- */

struct timer {
    int64_t due;
    int place; /* 1 and up in the heap, 0 when not set */
};

struct heap {
    struct timer **at; /* at[1] is the earliest */
    int count, room;
};

static inline void heap_put(struct heap *h, int i, struct timer *t) {
    h->at[i] = t;
    t->place = i;
}

static void heap_settle(struct heap *h, int i, struct timer *t) {
    while (i > 1 && h->at[i / 2]->due > t->due) {
        heap_put(h, i, h->at[i / 2]);
        i /= 2;
    }
    for (int child; (child = 2 * i) <= h->count; i = child) {
        if (child < h->count && h->at[child + 1]->due < h->at[child]->due) child++;
        if (h->at[child]->due >= t->due) break;
        heap_put(h, i, h->at[child]);
    }
    heap_put(h, i, t);
}

static void timer_set(struct heap *h, struct timer *t, int64_t due) {
    t->due = due;
    if (!t->place) {
        if (h->count + 2 > h->room) {
            h->room = h->room ? 2 * h->room : 256;
            h->at = must(realloc(h->at, (size_t)h->room * sizeof *h->at));
        }
        t->place = ++h->count;
    }
    heap_settle(h, t->place, t);
}

static void timer_unset(struct heap *h, struct timer *t) {
    if (!t->place) return;
    int hole = t->place;
    struct timer *last = h->at[h->count--];
    t->place = 0;
    if (last != t) heap_settle(h, hole, last);
}

#define OWNER(pointer, type, member) ((type *)(void *)((char *)(pointer) - offsetof(type, member)))

/* ---- sockets ---- */

/* Waits until `until` (a moment; 0 polls, negative waits for ever) with the kernel's nanosecond timers where it has them. */
static int wait_events(int epoll, struct epoll_event *events, int room, int64_t until) {
#ifdef SYS_epoll_pwait2
    static bool fine = true;
    if (fine && until > 0) {
        int64_t left = until - now_ns();
        if (left < 0) left = 0;
        struct timespec t = {left / SECOND, left % SECOND};
        long n = syscall(SYS_epoll_pwait2, epoll, events, room, &t, NULL, 0);
        if (n >= 0 || errno == EINTR) return n < 0 ? 0 : (int)n;
        fine = false;
    }
#endif
    int ms = -1;
    if (until == 0) ms = 0;
    if (until > 0) {
        int64_t left = until - now_ns();
        ms = left <= 0 ? 0 : (int)((left + 999999) / 1000000);
    }
    int n = epoll_wait(epoll, events, room, ms);
    return n < 0 ? 0 : n;
}

static void be_exact(void) {
    struct rlimit files;
    signal(SIGPIPE, SIG_IGN);
    prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
}

static void no_delay(int fd) {
    int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

/* The value of a header inside [head, end), or NULL; `*length` is its length without spaces around. */
static const char *header(const char *head, const char *end, const char *name, size_t *length) {
    size_t n = strlen(name);
    const char *line = head;
    while ((line = memchr(line, '\n', (size_t)(end - line)))) {
        line++;
        if ((size_t)(end - line) <= n || strncasecmp(line, name, n) || line[n] != ':') continue;
        const char *from = line + n + 1, *to = memchr(from, '\n', (size_t)(end - from));
        if (!to) to = end;
        while (from < to && *from == ' ') from++;
        while (to > from && (to[-1] == '\r' || to[-1] == ' ')) to--;
        *length = (size_t)(to - from);
        return from;
    }
    return NULL;
}

static bool header_says(const char *head, const char *end, const char *name, const char *word) {
    size_t length, n = strlen(word);
    const char *value = header(head, end, name, &length);
    for (; value && length >= n; value++, length--)
        if (!strncasecmp(value, word, n)) return true;
    return false;
}

#endif
