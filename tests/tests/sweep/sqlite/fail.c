// Loaded before libc: of all calls of a kind that the process makes, one fails.
// FAIL_CALL is write or flush, FAIL_AT which one, from 1, FAIL_WITH is EIO or ENOSPC.
// At the end FAIL_LOG gets: writes, flushes, and whether one was made to fail.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

static atomic_long writes, flushes, struck;

static int fails(const char *kind, atomic_long *calls) {
    long call = atomic_fetch_add(calls, 1) + 1;
    const char *wanted = getenv("FAIL_CALL");
    if (!wanted || strcmp(wanted, kind) || call != atol(getenv("FAIL_AT"))) return 0;
    atomic_store(&struck, 1);
    errno = strcmp(getenv("FAIL_WITH"), "ENOSPC") ? EIO : ENOSPC;
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

__attribute__((destructor)) static void tell(void) {
    const char *log = getenv("FAIL_LOG");
    FILE *file = log ? fopen(log, "w") : NULL;
    if (!file) return;
    fprintf(file, "%ld %ld %ld\n", writes, flushes, struck);
    fclose(file);
}
