/* One process of the isolation measurement. It says "ready", waits for a line, and begins.
 *
 *   worker hog                                          burns CPU until it is ended
 *   worker critical RUNTIME PERIOD JOBS WINDOW RELATIVE  (ns) burns RUNTIME of CPU time in every PERIOD
 *
 * The critical one prints, at its end, "jobs" with the response time of each job and "windows" with the CPU time in each
 * whole window, all in nanoseconds. RELATIVE 1: it sleeps for PERIOD - RUNTIME after each job instead of until the next
 * multiple of PERIOD. It ends with its parent.
 */
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

static int64_t clock_ns(clockid_t which)
{
    struct timespec t;
    clock_gettime(which, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void sleep_until(int64_t at)
{
    struct timespec t = {at / 1000000000, at % 1000000000};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR) {
    }
}

static int wait_for_start(void)
{
    char line[16];
    printf("ready\n");
    fflush(stdout);
    return fgets(line, sizeof line, stdin) != NULL;
}

int main(int argc, char **argv)
{
    pid_t parent = getppid();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        return 1;
    if (argc == 2 && strcmp(argv[1], "hog") == 0) {
        if (!wait_for_start())
            return 1;
        for (volatile uint64_t n = 0;; n++) {
        }
    }
    if (argc != 7 || strcmp(argv[1], "critical") != 0)
        return 2;
    int64_t runtime = atoll(argv[2]), period = atoll(argv[3]), jobs = atoll(argv[4]), width = atoll(argv[5]);
    int relative = atoi(argv[6]);
    if (runtime <= 0 || period <= 0 || jobs <= 0 || jobs > 10000000 || width <= 0)
        return 2;
    int64_t windows = jobs * period / width;
    int64_t *response = malloc(sizeof *response * jobs), *used = malloc(sizeof *used * (windows + 1));
    if (response == NULL || used == NULL)
        return 1;
    memset(response, 0, sizeof *response * jobs); /* no page is first touched while it is measured */
    memset(used, 0, sizeof *used * (windows + 1));
    if (!wait_for_start())
        return 1;
    int64_t start = clock_ns(CLOCK_MONOTONIC) + period, release = start, last = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    for (int64_t job = 0; job < jobs; job++) {
        sleep_until(release);
        int64_t begin = clock_ns(CLOCK_THREAD_CPUTIME_ID), now, cpu;
        do {
            cpu = clock_ns(CLOCK_THREAD_CPUTIME_ID);
            now = clock_ns(CLOCK_MONOTONIC);
            int64_t window = (now - start) / width;
            used[window < windows ? window : windows] += cpu - last;
            last = cpu;
        } while (cpu - begin < runtime);
        response[job] = now - release;
        release = relative ? now + (period - runtime) : release + period;
    }
    printf("jobs");
    for (int64_t job = 0; job < jobs; job++)
        printf(" %lld", (long long)response[job]);
    printf("\nwindows");
    for (int64_t window = 0; window < windows; window++)
        printf(" %lld", (long long)used[window]);
    printf("\n");
    return 0;
}
