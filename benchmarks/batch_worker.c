/* A batch job that counts its work: batch_worker FILE [REST]
 *
 * FILE holds one 64-bit number, the units done so far; it goes on from there. A unit is some 0.1 ms of one core that nobody
 * disturbs; after each it rests for REST microseconds. It touches no memory, so it disturbs others by
 * its CPU time only. */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int main(int count, char **words)
{
    if (count < 2 || count > 3) {
        fputs("usage: batch_worker FILE [REST]\n", stderr);
        return 2;
    }
    useconds_t rest = count == 3 ? strtoul(words[2], NULL, 10) : 0;
    int fd = open(words[1], O_RDWR | O_CREAT, 0644);
    if (fd < 0 || ftruncate(fd, sizeof(uint64_t))) {
        perror(words[1]);
        return 1;
    }
    volatile uint64_t *done = mmap(NULL, sizeof *done, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (done == MAP_FAILED) {
        perror(words[1]);
        return 1;
    }
    uint64_t x = 88172645463325252ULL;
    for (;;) {
        for (int i = 0; i < 50000; i++) {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
        }
        /* Never true, but the compiler does not know. */
        *done += x ? 1 : 2;
        if (rest) {
            usleep(rest);
        }
    }
}
