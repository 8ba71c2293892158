// Loaded before libc into a server: while $FULL has a file of that name, its folders of the
// name have no room left. The log is never written over; other files may be, as on most
// disks, and cannot grow.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static int lies_in(int file, const char *folder) {
    const char *flags = getenv("FULL");
    char name[4096], path[4096], part[64];
    snprintf(name, sizeof name, "%s/%s", flags ? flags : "/nowhere", folder);
    if (access(name, F_OK)) return 0;
    snprintf(name, sizeof name, "/proc/self/fd/%d", file);
    ssize_t length = readlink(name, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    snprintf(part, sizeof part, "/%s/", folder);
    return strstr(path, part) != NULL;
}

// A write that ends at `end`, or where nobody said.
static int full(int file, off_t end) {
    int before = errno;
    struct stat now;
    int is = lies_in(file, "pg_wal")
        || (lies_in(file, "letters") && (fstat(file, &now) || end < 0 || end > now.st_size));
    errno = is ? ENOSPC : before;
    return is;
}

static off_t all(const struct iovec *parts, int count) {
    off_t bytes = 0;
    for (int at = 0; at < count; at++) bytes += (off_t)parts[at].iov_len;
    return bytes;
}

ssize_t write(int file, const void *bytes, size_t size) {
    if (full(file, -1)) return -1;
    ssize_t (*real)(int, const void *, size_t) = dlsym(RTLD_NEXT, "write");
    return real(file, bytes, size);
}

ssize_t pwrite64(int file, const void *bytes, size_t size, off64_t at) {
    if (full(file, at + (off_t)size)) return -1;
    ssize_t (*real)(int, const void *, size_t, off64_t) = dlsym(RTLD_NEXT, "pwrite64");
    return real(file, bytes, size, at);
}

ssize_t pwrite(int file, const void *bytes, size_t size, off_t at) {
    return pwrite64(file, bytes, size, at);
}

ssize_t pwritev64(int file, const struct iovec *parts, int count, off64_t at) {
    if (full(file, at + all(parts, count))) return -1;
    ssize_t (*real)(int, const struct iovec *, int, off64_t) = dlsym(RTLD_NEXT, "pwritev64");
    return real(file, parts, count, at);
}

ssize_t pwritev(int file, const struct iovec *parts, int count, off_t at) {
    return pwritev64(file, parts, count, at);
}

int posix_fallocate64(int file, off64_t at, off64_t size) {
    if (full(file, at + size)) return ENOSPC;
    int (*real)(int, off64_t, off64_t) = dlsym(RTLD_NEXT, "posix_fallocate64");
    return real(file, at, size);
}

int posix_fallocate(int file, off_t at, off_t size) {
    return posix_fallocate64(file, at, size);
}
