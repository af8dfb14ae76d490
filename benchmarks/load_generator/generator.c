/* Load for memcached, one thread. Open loop: requests leave when they are due, whether or not others were answered,
 * and every latency counts from the moment when its request was due. So a stall of the server, of the network or of this
 * program itself is in the latencies of all requests that were due meanwhile.
 *
 * generator key=value ...   and on standard input one line "<requests per second> <seconds>" per step.
 *
 * Standard output:
 *   start <ns of CLOCK_MONOTONIC at which the first step begins>
 *   row <columns of print_row>      one per window of 100 ms, in order, once all its requests have an end
 *   step <columns of print_step>    one per step, at the end
 *   end <columns of print_end>
 * A request belongs to the window, and the step, in which it was due. What stays unanswered at the end counts with the
 * time that it has waited until then, which is a lower bound.
 *
 * Standard error: one sentence when it cannot run. Exit codes: 2 a bad argument, 3 no server, 4 not permitted.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define NS 1000000000ULL
#define WINDOW_NS (NS / 10)
#define NEVER UINT64_MAX
#define SERVER_WAIT_MS 3000
#define RECONNECT_NS (NS / 10)
/* Requests sent between two looks at the answers: a burst must not keep answers waiting for their time stamp. */
#define BURST 64
#define TEMPLATES 16
#define VECTORS 32

/* Logarithmic histogram: 64 buckets per octave, so a percentile is off by less than 0.8 %. */
#define SUB_BITS 6
#define BUCKETS ((40 - SUB_BITS + 1) << SUB_BITS)

enum { BAD_ARGUMENT = 2, NO_SERVER = 3, NOT_PERMITTED = 4 };

static void fail(int code, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vfprintf(stderr, format, list);
    va_end(list);
    fputc('\n', stderr);
    exit(code);
}

static void *allocate(size_t count, size_t size)
{
    void *memory = calloc(count, size);
    if (!memory)
        fail(1, "there is not enough memory");
    return memory;
}

static uint64_t clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * NS + (uint64_t)now.tv_nsec;
}

/* ---- histogram ---- */

typedef struct {
    uint64_t count;
    uint64_t max;
    double sum;
    uint32_t bucket[BUCKETS];
} Histogram;

static void record(Histogram *h, uint64_t ns)
{
    unsigned index;
    if (ns < (1u << SUB_BITS)) {
        index = (unsigned)ns;
    } else {
        unsigned top = 63u - (unsigned)__builtin_clzll(ns);
        index = ((top - SUB_BITS + 1) << SUB_BITS) + ((unsigned)(ns >> (top - SUB_BITS)) & ((1u << SUB_BITS) - 1));
    }
    h->bucket[index < BUCKETS ? index : BUCKETS - 1]++;
    h->count++;
    h->sum += (double)ns;
    if (ns > h->max)
        h->max = ns;
}

/* Microseconds; nearest rank; the middle of the bucket. -1 where nothing was recorded. */
static double percentile(const Histogram *h, double share)
{
    if (h->count == 0)
        return -1.0;
    uint64_t rank = (uint64_t)ceil(share * (double)h->count), seen = 0;
    for (unsigned i = 0; i < BUCKETS; i++) {
        seen += h->bucket[i];
        if (seen >= rank) {
            double ns = i;
            if (i >= (1u << SUB_BITS)) {
                unsigned shift = (i >> SUB_BITS) - 1;
                uint64_t low = (uint64_t)((i & ((1u << SUB_BITS) - 1)) | (1u << SUB_BITS)) << shift;
                ns = (double)low + 0.5 * (double)((uint64_t)1 << shift);
            }
            return (ns < (double)h->max ? ns : (double)h->max) / 1e3;
        }
    }
    return (double)h->max / 1e3;
}

/* ---- what was asked ---- */

typedef struct {
    double rate, start_s, end_s;
} Step;

static const char *host = "127.0.0.1";
static long port = 11211, connections = 16, keys_per_get = 1, values, value_bytes = 64, fifo;
static uint64_t seed = 1;
static bool closed;
static double drain_s = 2.0;
static Step *steps;
static size_t step_count;
static double total_s;

static long whole(const char *key, const char *text, long low, long high)
{
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (errno || *end || end == text || value < low || value > high)
        fail(BAD_ARGUMENT, "%s must be a whole number from %ld to %ld, not '%s'", key, low, high, text);
    return value;
}

static void pin(const char *text)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    char *copy = strdup(text), *rest = copy, *word;
    while ((word = strsep(&rest, ",")))
        CPU_SET(whole("cpus", word, 0, CPU_SETSIZE - 1), &set);
    free(copy);
    if (sched_setaffinity(0, sizeof set, &set))
        fail(NOT_PERMITTED, "this process may not run on the cores %s: %s", text, strerror(errno));
}

static void read_arguments(int count, char **words)
{
    for (int i = 1; i < count; i++) {
        char *key = words[i], *value = strchr(key, '=');
        if (!value)
            fail(BAD_ARGUMENT, "'%s' is not key=value", key);
        *value++ = 0;
        if (!strcmp(key, "host"))
            host = value;
        else if (!strcmp(key, "port"))
            port = whole(key, value, 1, 65535);
        else if (!strcmp(key, "connections"))
            connections = whole(key, value, 1, 4096);
        else if (!strcmp(key, "keys_per_get"))
            keys_per_get = whole(key, value, 1, 1000);
        else if (!strcmp(key, "values"))
            values = whole(key, value, 0, 1000000);
        else if (!strcmp(key, "value_bytes"))
            value_bytes = whole(key, value, 1, 500000);
        else if (!strcmp(key, "fifo"))
            fifo = whole(key, value, 0, 99);
        else if (!strcmp(key, "closed"))
            closed = whole(key, value, 0, 1) == 1;
        else if (!strcmp(key, "seed"))
            seed = strtoull(value, NULL, 10);
        else if (!strcmp(key, "drain_s"))
            drain_s = strtod(value, NULL);
        else if (!strcmp(key, "cpus"))
            pin(value);
        else
            fail(BAD_ARGUMENT, "there is no argument '%s'", key);
    }
}

static void read_steps(void)
{
    double rate, seconds;
    size_t room = 0;
    while (scanf("%lf %lf", &rate, &seconds) == 2) {
        if (!(rate >= 0.0 && rate <= 1e8) || !(seconds > 0.0 && seconds <= 1e6))
            fail(BAD_ARGUMENT, "a step of %g requests/s over %g s is none", rate, seconds);
        if (step_count == room) {
            room = room ? 2 * room : 16;
            steps = realloc(steps, room * sizeof *steps);
            if (!steps)
                fail(1, "there is not enough memory");
        }
        steps[step_count++] = (Step){rate, total_s, total_s + seconds};
        total_s += seconds;
    }
    if (step_count == 0)
        fail(BAD_ARGUMENT, "no step of load was given");
}

/* ---- when requests are due: a Poisson process whose rate changes from step to step ---- */

static uint64_t random_state;

static double draw_exponential(void)
{
    /* splitmix64 */
    uint64_t z = (random_state += 0x9E3779B97F4A7C15ULL);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    z ^= z >> 31;
    return -log(((double)(z >> 11) + 0.5) / 9007199254740992.0);
}

static size_t due_step; /* of the request that is due next */
static double due_s;

/* Nanoseconds after the start; NEVER after the last one. */
static uint64_t next_due(void)
{
    double left = draw_exponential();
    for (; due_step < step_count; due_step++) {
        const Step *step = &steps[due_step];
        double room = (step->end_s - due_s) * step->rate;
        if (left < room) {
            due_s += left / step->rate;
            return (uint64_t)(due_s * 1e9);
        }
        left -= room;
        due_s = step->end_s;
    }
    return NEVER;
}

static double expected_requests(double from_s, double to_s)
{
    static size_t first; /* windows are asked for in order */
    double sum = 0.0;
    while (first + 1 < step_count && steps[first].end_s <= from_s)
        first++;
    for (size_t i = first; i < step_count && steps[i].start_s < to_s; i++)
        sum += steps[i].rate * fmax(0.0, fmin(to_s, steps[i].end_s) - fmax(from_s, steps[i].start_s));
    return sum;
}

/* ---- windows and steps of the report ---- */

typedef struct Window {
    uint64_t due, sent, blocked, lost, unanswered, errors, ended;
    double busy_ms, waited_ms;
    Histogram latency, late;
    struct Window *next;
} Window;

typedef struct {
    uint64_t due, lost, unanswered, errors;
    Histogram latency;
} StepSum;

static Window **windows, *spare;
static size_t window_count, first_window; /* first_window: the oldest that is not printed yet */
static StepSum *sums;
static StepSum whole_run;
static Histogram whole_late;
static uint64_t whole_sent, whole_blocked;
static int schedstat = -1;
static double busy_before_ms, waited_before_ms, busy_first_ms, waited_first_ms;

static Window *window_of(uint64_t due)
{
    size_t index = due / WINDOW_NS;
    if (index >= window_count)
        index = window_count - 1;
    if (!windows[index]) {
        Window *window = spare;
        if (window) {
            spare = window->next;
            memset(window, 0, sizeof *window);
        } else {
            window = allocate(1, sizeof *window);
        }
        windows[index] = window;
    }
    return windows[index];
}

/* CPU time of this program, and how long it was ready to run and had no CPU, both since it started. */
static void read_own_time(double *busy_ms, double *waited_ms)
{
    char text[128];
    unsigned long long busy = 0, waited = 0;
    ssize_t got = schedstat < 0 ? -1 : pread(schedstat, text, sizeof text - 1, 0);
    if (got > 0) {
        text[got] = 0;
        if (sscanf(text, "%llu %llu", &busy, &waited) == 2) {
            *busy_ms = (double)busy / 1e6;
            *waited_ms = (double)waited / 1e6;
            return;
        }
    }
    struct timespec cpu;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu);
    *busy_ms = (double)cpu.tv_sec * 1e3 + (double)cpu.tv_nsec / 1e6;
    *waited_ms = 0.0;
}

static void note_own_time(size_t index)
{
    double busy, waited;
    read_own_time(&busy, &waited);
    Window *window = window_of((uint64_t)index * WINDOW_NS);
    window->busy_ms += busy - busy_before_ms;
    window->waited_ms += waited - waited_before_ms;
    busy_before_ms = busy;
    waited_before_ms = waited;
}

static void print_latency(const Histogram *latency, uint64_t unanswered)
{
    printf(" %" PRIu64 " %.1f %.1f %.1f %.1f %.1f", latency->count - unanswered,
           latency->count ? latency->sum / (double)latency->count / 1e3 : -1.0, percentile(latency, 0.5),
           percentile(latency, 0.95), percentile(latency, 0.99), latency->count ? (double)latency->max / 1e3 : -1.0);
}

static void print_row(size_t index, const Window *w)
{
    double from = (double)index * 0.1, to = fmin(from + 0.1, total_s);
    printf("row %.1f %.6f %.1f %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64, from, to - from,
           closed ? 0.0 : expected_requests(from, to) / (to - from), w->due, w->sent, w->blocked, w->lost,
           w->unanswered, w->errors);
    print_latency(&w->latency, w->unanswered);
    printf(" %.1f %.1f %.3f %.3f\n", percentile(&w->late, 0.95), w->late.count ? (double)w->late.max / 1e3 : -1.0,
           w->busy_ms, w->waited_ms);
}

static void print_step(size_t index)
{
    const StepSum *s = &sums[index];
    printf("step %.6f %.6f %.3f %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64, steps[index].start_s,
           steps[index].end_s, steps[index].rate, s->due, s->lost, s->unanswered, s->errors);
    print_latency(&s->latency, s->unanswered);
    putchar('\n');
}

static void print_end(uint64_t took_ns)
{
    double busy, waited;
    read_own_time(&busy, &waited);
    printf("end %.6f %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64, (double)took_ns / 1e9,
           whole_run.due, whole_sent, whole_blocked, whole_run.lost, whole_run.unanswered, whole_run.errors);
    print_latency(&whole_run.latency, whole_run.unanswered);
    printf(" %.1f %.1f %.3f %.3f\n", percentile(&whole_late, 0.95),
           whole_late.count ? (double)whole_late.max / 1e3 : -1.0, busy - busy_first_ms, waited - waited_first_ms);
}

/* Print, in order, what has come to its end: no more requests will be due in it, and all that were have ended. */
static void print_finished(uint64_t everything_due_before)
{
    bool any = false;
    while (first_window < window_count && (uint64_t)(first_window + 1) * WINDOW_NS <= everything_due_before) {
        Window *window = window_of((uint64_t)first_window * WINDOW_NS);
        if (window->ended < window->due)
            break;
        print_row(first_window, window);
        windows[first_window++] = NULL;
        window->next = spare;
        spare = window;
        any = true;
    }
    if (any)
        fflush(stdout);
}

/* ---- connections ---- */

typedef struct {
    uint64_t due;
    uint32_t step;
    uint32_t template;
} Request;

typedef struct {
    int fd;
    bool up, writing;
    uint64_t retry_at;
    Request *ring; /* from the oldest unanswered one to the newest, `room` is a power of two */
    size_t room, head, unsent, tail;
    size_t offset; /* bytes of the first unsent one that are with the kernel */
    size_t skip;   /* bytes of a value that are still to come */
    size_t line_length;
    bool too_long;
    char line[512];
} Connection;

static Connection *conns;
static struct iovec templates[TEMPLATES];
static uint32_t next_template;
static long next_conn, down;
static int epoll;
static uint64_t start, outstanding;
static struct sockaddr_storage address;
static socklen_t address_length;
static volatile sig_atomic_t stopped;

static void on_signal(int number)
{
    (void)number;
    stopped = 1;
}

static void find_address(void)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found;
    char service[16];
    snprintf(service, sizeof service, "%ld", port);
    int error = getaddrinfo(host, service, &hints, &found);
    if (error)
        fail(NO_SERVER, "the host '%s' is not known: %s", host, gai_strerror(error));
    memcpy(&address, found->ai_addr, found->ai_addrlen);
    address_length = found->ai_addrlen;
    freeaddrinfo(found);
}

static int open_socket(void)
{
    int fd = socket(address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), on = 1;
    if (fd < 0)
        fail(1, "no socket can be made: %s", strerror(errno));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (connect(fd, (struct sockaddr *)&address, address_length) && errno != EINPROGRESS) {
        close(fd);
        return -1;
    }
    return fd;
}

static void await(int fd, short what, const char *for_what)
{
    struct pollfd poll_fd = {.fd = fd, .events = what};
    int error = 0;
    socklen_t length = sizeof error;
    if (poll(&poll_fd, 1, SERVER_WAIT_MS) == 0)
        fail(NO_SERVER, "%s:%ld did not answer within %d s (%s)", host, port, SERVER_WAIT_MS / 1000, for_what);
    getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length);
    if (error)
        fail(NO_SERVER, "nothing can be reached at %s:%ld: %s", host, port, strerror(error));
}

/* Before the start there is time to wait for the kernel. */
static void send_all(int fd, const char *text, size_t length)
{
    while (length) {
        ssize_t sent = send(fd, text, length, MSG_NOSIGNAL);
        if (sent < 0 && errno != EAGAIN && errno != EINTR)
            fail(NO_SERVER, "%s:%ld closed the connection: %s", host, port, strerror(errno));
        if (sent < 0) {
            await(fd, POLLOUT, "values");
            continue;
        }
        text += sent;
        length -= (size_t)sent;
    }
}

/* A server that answers "version" is one of memcached's kind, and has read all that was sent before. */
static void check_version(int fd)
{
    char answer[256];
    size_t length = 0;
    send_all(fd, "version\r\n", 9);
    for (;;) {
        await(fd, POLLIN, "version");
        ssize_t got = recv(fd, answer + length, sizeof answer - 1 - length, 0);
        if (got < 0 && (errno == EAGAIN || errno == EINTR))
            continue;
        if (got <= 0)
            fail(NO_SERVER, "%s:%ld closed the connection when asked for its version", host, port);
        length += (size_t)got;
        answer[length] = 0;
        if (strchr(answer, '\n'))
            break;
        if (length == sizeof answer - 1)
            break;
    }
    if (strncmp(answer, "VERSION", 7)) {
        answer[strcspn(answer, "\r\n")] = 0;
        fail(NO_SERVER, "what answers at %s:%ld is not memcached: it says '%.60s' when asked for its version", host,
             port, answer);
    }
}

static void store_values(int fd)
{
    size_t room = (size_t)value_bytes + 128;
    char *text = allocate(1, room);
    for (long i = 0; i < values; i++) {
        int head = snprintf(text, room, "set v%07ld 0 0 %ld noreply\r\n", i, value_bytes);
        memset(text + head, 'a' + (int)(i % 26), (size_t)value_bytes);
        memcpy(text + head + value_bytes, "\r\n", 2);
        send_all(fd, text, (size_t)head + (size_t)value_bytes + 2);
    }
    free(text);
    check_version(fd);
}

/* Keys that are there (v...), or that are never stored (a...). */
static void make_templates(void)
{
    long key = 0;
    for (int t = 0; t < TEMPLATES; t++) {
        size_t room = 16 + 9 * (size_t)keys_per_get;
        char *text = allocate(1, room);
        size_t length = (size_t)snprintf(text, room, "get");
        for (long i = 0; i < keys_per_get; i++, key++)
            length += (size_t)snprintf(text + length, room - length, " %c%07ld", values ? 'v' : 'a',
                                       values ? key % values : key);
        length += (size_t)snprintf(text + length, room - length, "\r\n");
        templates[t] = (struct iovec){text, length};
    }
}

static void watch(Connection *c, int operation)
{
    struct epoll_event event = {.events = EPOLLIN | (c->writing ? EPOLLOUT : 0), .data.ptr = c};
    if (epoll_ctl(epoll, operation, c->fd, &event))
        fail(1, "epoll: %s", strerror(errno));
}

static void end_request(const Request *r)
{
    window_of(r->due)->ended++;
    outstanding--;
}

/* The server went away: what it had not answered is lost. */
static void drop(Connection *c)
{
    for (; c->head < c->tail; c->head++) {
        const Request *r = &c->ring[c->head & (c->room - 1)];
        window_of(r->due)->lost++;
        sums[r->step].lost++;
        whole_run.lost++;
        end_request(r);
    }
    close(c->fd);
    c->fd = -1;
    down++;
    c->up = c->writing = c->too_long = false;
    c->head = c->unsent = c->tail = c->offset = c->skip = c->line_length = 0;
    c->retry_at = clock_ns() + RECONNECT_NS;
}

static void reconnect(Connection *c)
{
    c->fd = open_socket();
    if (c->fd < 0) {
        c->retry_at = clock_ns() + RECONNECT_NS;
        return;
    }
    down--;
    c->writing = true; /* writable means connected */
    watch(c, EPOLL_CTL_ADD);
}

static void flush_requests(Connection *c)
{
    while (c->unsent < c->tail) {
        struct iovec parts[VECTORS];
        size_t count = 0;
        for (size_t i = c->unsent; i < c->tail && count < VECTORS; i++, count++) {
            parts[count] = templates[c->ring[i & (c->room - 1)].template];
            if (count == 0) {
                parts[0].iov_base = (char *)parts[0].iov_base + c->offset;
                parts[0].iov_len -= c->offset;
            }
        }
        struct msghdr message = {.msg_iov = parts, .msg_iovlen = count};
        ssize_t sent = sendmsg(c->fd, &message, MSG_NOSIGNAL);
        if (sent < 0) {
            if (errno == EINTR)
                continue;
            if (errno != EAGAIN) {
                drop(c);
                return;
            }
            if (!c->writing) {
                c->writing = true;
                watch(c, EPOLL_CTL_MOD);
            }
            return;
        }
        c->offset += (size_t)sent;
        while (c->unsent < c->tail) {
            const Request *r = &c->ring[c->unsent & (c->room - 1)];
            size_t length = templates[r->template].iov_len;
            if (c->offset < length)
                break;
            c->offset -= length;
            c->unsent++;
            window_of(r->due)->sent++;
            whole_sent++;
        }
    }
    if (c->writing) {
        c->writing = false;
        watch(c, EPOLL_CTL_MOD);
    }
}

static void send_request(Connection *c, uint64_t due, size_t step)
{
    if (c->tail - c->head == c->room) {
        Request *bigger = allocate(2 * c->room, sizeof *bigger);
        for (size_t i = c->head; i < c->tail; i++)
            bigger[i & (2 * c->room - 1)] = c->ring[i & (c->room - 1)];
        free(c->ring);
        c->ring = bigger;
        c->room *= 2;
    }
    c->ring[c->tail++ & (c->room - 1)] = (Request){due, (uint32_t)step, next_template};
    next_template = (next_template + 1) % TEMPLATES;
    outstanding++;
    if (c->tail - c->unsent > 1 || c->writing) {
        window_of(due)->blocked++;
        whole_blocked++;
    } else {
        flush_requests(c);
    }
}

static void dispatch(Connection *fixed, uint64_t due, size_t step, uint64_t now)
{
    Window *window = window_of(due);
    window->due++;
    sums[step].due++;
    whole_run.due++;
    record(&window->late, now - due);
    record(&whole_late, now - due);
    Connection *chosen = fixed;
    for (long i = 0; i < connections && !chosen; i++) {
        Connection *c = &conns[next_conn];
        next_conn = (next_conn + 1) % connections;
        if (c->up)
            chosen = c;
    }
    if (chosen) {
        send_request(chosen, due, step);
        return;
    }
    window->lost++;
    window->ended++;
    sums[step].lost++;
    whole_run.lost++;
}

static void note_latency(const Request *r, uint64_t now)
{
    uint64_t ns = now - r->due;
    record(&window_of(r->due)->latency, ns);
    record(&sums[r->step].latency, ns);
    record(&whole_run.latency, ns);
}

/* One line of an answer. Returns whether it ends the answer. */
static bool read_line(Connection *c)
{
    const char *line = c->line;
    if (!strncmp(line, "VALUE ", 6)) {
        const char *last = strrchr(line, ' ');
        c->skip = strtoul(last, NULL, 10) + 2;
        return false;
    }
    return true;
}

static void receive(Connection *c, uint64_t end_ns)
{
    static char buffer[1 << 16];
    for (;;) {
        ssize_t got = recv(c->fd, buffer, sizeof buffer, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0 && errno == EAGAIN)
            return;
        if (got <= 0) {
            drop(c);
            return;
        }
        uint64_t now = clock_ns() - start;
        for (ssize_t i = 0; i < got;) {
            if (c->skip) {
                size_t here = (size_t)(got - i) < c->skip ? (size_t)(got - i) : c->skip;
                c->skip -= here;
                i += (ssize_t)here;
                continue;
            }
            char byte = buffer[i++];
            if (byte != '\n') {
                if (c->line_length < sizeof c->line - 1)
                    c->line[c->line_length++] = byte;
                continue;
            }
            c->line[c->line_length] = 0;
            c->line_length = 0;
            if (!read_line(c))
                continue;
            if (c->head == c->unsent) {
                /* An answer without a request: the rest of the stream cannot be trusted. */
                drop(c);
                return;
            }
            Request r = c->ring[c->head++ & (c->room - 1)];
            if (strncmp(c->line, "END", 3)) {
                window_of(r.due)->errors++;
                sums[r.step].errors++;
                whole_run.errors++;
            }
            note_latency(&r, now);
            end_request(&r);
            if (closed && now < end_ns && !stopped)
                dispatch(c, now, r.step, now);
            if (!c->up)
                return;
        }
        if (got < (ssize_t)sizeof buffer)
            return;
    }
}

static void on_event(Connection *c, uint32_t events, uint64_t end_ns)
{
    if (c->fd < 0)
        return;
    if (!c->up) {
        int error = 0;
        socklen_t length = sizeof error;
        getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &error, &length);
        if (error || (events & (EPOLLERR | EPOLLHUP))) {
            drop(c);
            return;
        }
        c->up = true;
        uint64_t now = clock_ns() - start;
        if (closed && now < end_ns)
            dispatch(c, now, 0, now);
    }
    if (events & (EPOLLIN | EPOLLERR | EPOLLHUP))
        receive(c, end_ns);
    if (c->up && (events & EPOLLOUT))
        flush_requests(c);
}

static void give_up_waiting(void)
{
    uint64_t now = clock_ns() - start;
    for (long i = 0; i < connections; i++) {
        Connection *c = &conns[i];
        for (; c->head < c->tail; c->head++) {
            const Request *r = &c->ring[c->head & (c->room - 1)];
            note_latency(r, now);
            window_of(r->due)->unanswered++;
            sums[r->step].unanswered++;
            whole_run.unanswered++;
            end_request(r);
        }
    }
}

static void become_fifo(void)
{
    struct sched_param parameter = {.sched_priority = (int)fifo};
    if (sched_setscheduler(0, SCHED_FIFO | SCHED_RESET_ON_FORK, &parameter))
        fail(NOT_PERMITTED, "this process may not run as SCHED_FIFO: %s", strerror(errno));
}

int main(int count, char **words)
{
    read_arguments(count, words);
    read_steps();
    random_state = seed;
    make_templates();
    find_address();
    signal(SIGTERM, on_signal);
    signal(SIGINT, on_signal);
    prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);

    window_count = (size_t)ceil(total_s * 10.0 - 1e-6);
    windows = allocate(window_count, sizeof *windows);
    sums = allocate(step_count, sizeof *sums);
    for (int i = 0; i < 64; i++) {
        Window *window = allocate(1, sizeof *window);
        memset(window, 1, sizeof *window); /* touched now, so that no page fault falls into the measurement */
        window->next = spare;
        spare = window;
    }
    epoll = epoll_create1(EPOLL_CLOEXEC);
    conns = allocate((size_t)connections, sizeof *conns);
    for (long i = 0; i < connections; i++) {
        Connection *c = &conns[i];
        c->room = 256;
        c->ring = allocate(c->room, sizeof *c->ring);
        c->fd = open_socket();
        if (c->fd < 0)
            fail(NO_SERVER, "nothing can be reached at %s:%ld: %s", host, port, strerror(errno));
        await(c->fd, POLLOUT, "connecting");
        check_version(c->fd);
        c->up = true;
        watch(c, EPOLL_CTL_ADD);
    }
    if (values)
        store_values(conns[0].fd);
    int timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    struct epoll_event timer_event = {.events = EPOLLIN | EPOLLET, .data.ptr = NULL};
    if (timer < 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, timer, &timer_event))
        fail(1, "no timer can be made: %s", strerror(errno));
    schedstat = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
    if (fifo)
        become_fifo();

    uint64_t end_ns = (uint64_t)(total_s * 1e9), drain_ns = (uint64_t)(drain_s * 1e9), armed = 0;
    size_t passed = 0; /* windows whose end has passed */
    read_own_time(&busy_before_ms, &waited_before_ms);
    busy_first_ms = busy_before_ms;
    waited_first_ms = waited_before_ms;
    /* The first step begins a moment from now, so that the line is out before it. */
    start = clock_ns() + NS / 100;
    printf("start %" PRIu64 "\n", start);
    fflush(stdout);
    while (clock_ns() < start)
        usleep(500);
    uint64_t due = NEVER;
    if (closed) {
        for (long i = 0; i < connections; i++) {
            uint64_t now = clock_ns() - start;
            if (conns[i].up)
                dispatch(&conns[i], now, 0, now);
        }
    } else {
        due = next_due();
    }
    for (;;) {
        uint64_t now = clock_ns() - start;
        for (int i = 0; i < BURST && due <= now; i++) {
            dispatch(NULL, due, due_step, now);
            due = next_due();
            now = clock_ns() - start;
        }
        while (passed < window_count && (uint64_t)(passed + 1) * WINDOW_NS <= now)
            note_own_time(passed++);
        print_finished(due < now ? due : now);
        if (stopped || (due == NEVER && now >= end_ns && (outstanding == 0 || now >= end_ns + drain_ns)))
            break;
        uint64_t wake = end_ns + drain_ns;
        if (now < end_ns && end_ns < wake)
            wake = end_ns;
        if (due < wake)
            wake = due;
        if (passed < window_count && (uint64_t)(passed + 1) * WINDOW_NS < wake)
            wake = (uint64_t)(passed + 1) * WINDOW_NS;
        for (long i = 0; i < connections && down; i++) {
            Connection *c = &conns[i];
            if (c->fd < 0 && c->retry_at <= now + start)
                reconnect(c);
            if (c->fd < 0 && c->retry_at - start < wake)
                wake = c->retry_at - start; /* later than the start, as whatever was up once */
        }
        if (wake > now && wake != armed) {
            uint64_t at = start + wake;
            struct itimerspec when = {.it_value = {(time_t)(at / NS), (long)(at % NS)}};
            timerfd_settime(timer, TFD_TIMER_ABSTIME, &when, NULL);
            armed = wake;
        }
        struct epoll_event events[64];
        int ready = epoll_wait(epoll, events, 64, wake > now ? -1 : 0);
        for (int i = 0; i < ready; i++)
            if (events[i].data.ptr)
                on_event(events[i].data.ptr, events[i].events, end_ns);
    }
    uint64_t took = clock_ns() - start;
    give_up_waiting();
    if (passed < window_count)
        note_own_time(passed);
    if (stopped && took < end_ns)
        window_count = (size_t)(took / WINDOW_NS); /* the window that was cut short is not printed */
    print_finished(NEVER);
    for (size_t i = 0; i < step_count; i++)
        if (!stopped || steps[i].start_s * 1e9 < (double)took)
            print_step(i);
    print_end(took);
    fflush(stdout);
    return 0;
}
