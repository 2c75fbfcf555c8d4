/* The smallest program that moves requests, or a stream, over many TCP connections: one epoll set per thread, nothing
 * recorded. benches/many_flows.py compares linkgauge with it.
 *   cc -O2 -pthread -o peer many_flows_peer.c
 *   peer serve PORT THREADS | peer rr|stream PORT THREADS FLOWS SECONDS
 * The client prints requests per second and the p99 of the round trips in microseconds, or the bytes per second that the
 * server has read: it waits until that has read all, because thousands of buffers hold what takes part of a second. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { CHUNK = 131072, SLOTS = 1 << 20 };
static struct sockaddr_in address;
static int flows, stream, serving;
static double seconds;
static unsigned histogram[SLOTS]; /* microseconds */
static double sent_at[1 << 20];
struct worker { pthread_t thread; int epoll, listener, flows, *fds; unsigned long done; double took; };

static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + t.tv_nsec * 1e-9; }
static void need(int ok, const char *what) { if (!ok) { perror(what); exit(1); } }
static void watch(int epoll, int fd, unsigned events) {
    struct epoll_event event = {.events = events, .data.fd = fd};
    need(!epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event), "epoll_ctl");
}
static int prepare(int fd) { int on = 1; setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on); fcntl(fd, F_SETFL, O_NONBLOCK); return fd; }

/* Ends the streams, and waits until the server has read all of each and closes it. */
static void finish(struct worker *worker) {
    char byte;
    for (int i = 0; i < worker->flows; i++) shutdown(worker->fds[i], SHUT_WR);
    for (int i = 0; i < worker->flows; i++) {
        struct pollfd closed = {.fd = worker->fds[i], .events = POLLIN};
        while (poll(&closed, 1, -1) < 1 || read(worker->fds[i], &byte, 1) > 0) {}
    }
}

static void *work(void *argument) {
    struct worker *worker = argument;
    char *bytes = calloc(1, CHUNK);
    struct epoll_event events[256];
    for (int i = 0; i < worker->flows; i++) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        need(!connect(fd, (void *)&address, sizeof address), "connect");
        watch(worker->epoll, prepare(fd), stream ? EPOLLOUT : EPOLLIN);
        worker->fds[i] = fd;
    }
    double began = now();
    for (int i = 0; i < worker->flows && !stream; i++) {
        sent_at[worker->fds[i]] = now();
        need(write(worker->fds[i], bytes, 1) == 1, "write");
    }
    while (serving || now() < began + seconds) {
        int ready = epoll_wait(worker->epoll, events, 256, 100);
        for (int i = 0; i < ready; i++) {
            int fd = events[i].data.fd;
            if (serving && fd == worker->listener) {
                for (int client; (client = accept(fd, 0, 0)) >= 0;) watch(worker->epoll, prepare(client), EPOLLIN);
                continue;
            }
            ssize_t length = stream ? write(fd, bytes, CHUNK) : read(fd, bytes, CHUNK);
            if (serving && length <= 0) { close(fd); continue; }
            if (length <= 0) continue;
            /* A stream is only read: its messages are whole chunks, requests are single bytes. */
            if (serving) { if (length == 1) need(write(fd, bytes, 1) >= -1, "write"); continue; }
            if (!stream) {
                double at = now(), micros = (at - sent_at[fd]) * 1e6;
                histogram[micros < SLOTS ? (int)micros : SLOTS - 1]++;
                sent_at[fd] = at;
                need(write(fd, bytes, 1) == 1, "write");
            }
            worker->done += stream ? length : 1;
        }
    }
    if (stream) finish(worker);
    worker->took = now() - began;
    return 0;
}

int main(int count, char **words) {
    need(count == 4 || count == 6, "usage: serve PORT THREADS | rr|stream PORT THREADS FLOWS SECONDS");
    struct rlimit limit; getrlimit(RLIMIT_NOFILE, &limit); limit.rlim_cur = limit.rlim_max; setrlimit(RLIMIT_NOFILE, &limit);
    serving = !strcmp(words[1], "serve"), stream = !strcmp(words[1], "stream");
    address = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(atoi(words[2])), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int threads = atoi(words[3]), on = 1;
    if (!serving) flows = atoi(words[4]), seconds = atof(words[5]);
    struct worker *workers = calloc(threads, sizeof *workers);
    for (int i = 0; i < threads; i++) {
        workers[i].epoll = epoll_create1(0);
        if (serving) {
            int fd = workers[i].listener = socket(AF_INET, SOCK_STREAM, 0);
            setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on), setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on);
            need(!bind(fd, (void *)&address, sizeof address) && !listen(fd, 4096), "listen");
            watch(workers[i].epoll, prepare(fd), EPOLLIN);
        }
        workers[i].flows = flows / threads + (i < flows % threads);
        workers[i].fds = calloc(workers[i].flows, sizeof(int));
        pthread_create(&workers[i].thread, 0, work, &workers[i]);
    }
    unsigned long done = 0, passed = 0;
    double took = 0;
    for (int i = 0; i < threads; i++) {
        pthread_join(workers[i].thread, 0), done += workers[i].done;
        if (workers[i].took > took) took = workers[i].took;
    }
    int p99 = 0;
    while (!stream && p99 < SLOTS - 1 && (passed += histogram[p99]) < done * 0.99) p99++;
    printf("%.0f %d\n", done / took, p99);
}
