// Loaded before libc: of all calls of a kind that the process makes, one fails.
// FAIL_CALL is write, flush or lock, FAIL_AT which one, from 1, FAIL_WITH EIO, ENOSPC or
// EAGAIN. At the end FAIL_LOG gets: writes, flushes, locks to write under, and whether a
// call was made to fail.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

static atomic_long writes, flushes, locks, struck;

static int fails(const char *kind, atomic_long *calls) {
    long call = atomic_fetch_add(calls, 1) + 1;
    const char *wanted = getenv("FAIL_CALL");
    if (!wanted || strcmp(wanted, kind) || call != atol(getenv("FAIL_AT"))) return 0;
    atomic_store(&struck, 1);
    const char *with = getenv("FAIL_WITH");
    errno = !strcmp(with, "ENOSPC") ? ENOSPC : !strcmp(with, "EAGAIN") ? EAGAIN : EIO;
    return 1;
}

ssize_t pwrite64(int file, const void *bytes, size_t size, off64_t at) {
    if (fails("write", &writes)) return -1;
    ssize_t (*real)(int, const void *, size_t, off64_t) = dlsym(RTLD_NEXT, "pwrite64");
    return real(file, bytes, size, at);
}

ssize_t pwrite(int file, const void *bytes, size_t size, off_t at) {
    return pwrite64(file, bytes, size, at);
}

int fsync(int file) {
    if (fails("flush", &flushes)) return -1;
    int (*real)(int) = dlsym(RTLD_NEXT, "fsync");
    return real(file);
}

int fdatasync(int file) {
    if (fails("flush", &flushes)) return -1;
    int (*real)(int) = dlsym(RTLD_NEXT, "fdatasync");
    return real(file);
}

int fcntl64(int file, int command, ...) {
    va_list rest;
    va_start(rest, command);
    void *with = va_arg(rest, void *);
    va_end(rest);
    int locks_to_write = command == F_SETLK && ((struct flock *)with)->l_type == F_WRLCK;
    if (locks_to_write && fails("lock", &locks)) return -1;
    int (*real)(int, int, ...) = dlsym(RTLD_NEXT, "fcntl64");
    return real(file, command, with);
}

int fcntl(int file, int command, ...) {
    va_list rest;
    va_start(rest, command);
    void *with = va_arg(rest, void *);
    va_end(rest);
    return fcntl64(file, command, with);
}

__attribute__((destructor)) static void tell(void) {
    const char *log = getenv("FAIL_LOG");
    FILE *file = log ? fopen(log, "w") : NULL;
    if (!file) return;
    fprintf(file, "%ld %ld %ld %ld\n", writes, flushes, locks, struck);
    fclose(file);
}
