/* A device in 60 lines: the device protocol on UDP port 5102 and STAMP on port 862, here with the sockets of POSIX. On a board,
 * replace clock_ns by a hardware timer and the sockets by your stack's. Arguments: two ports, 0: any. Prints those it has. */
#include <arpa/inet.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>

#include "linkgauge_responder.h"

static lg_packets device;
static lg_stamp stamp;
static uint8_t packet[1500];

static uint64_t clock_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int listen_on(const char *port) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
    socklen_t length = sizeof at;
    int socket_of = socket(AF_INET, SOCK_DGRAM, 0);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (bind(socket_of, (struct sockaddr *)&at, length) || getsockname(socket_of, (struct sockaddr *)&at, &length)) {
        perror(port);
        exit(2);
    }
    printf("%d\n", ntohs(at.sin_port));
    return socket_of;
}

int main(int count, char **arguments) {
    struct pollfd ports[2] = {
        {.fd = listen_on(count > 1 ? arguments[1] : "5102"), .events = POLLIN},
        {.fd = listen_on(count > 2 ? arguments[2] : "862"), .events = POLLIN},
    };
    lg_packets_init(&device, sizeof packet, 1);
    lg_stamp_init(&stamp, 1);
    fflush(stdout);
    while (poll(ports, 2, -1) > 0) {
        for (int port = 0; port < 2; port++) {
            struct sockaddr_in from;
            socklen_t size = sizeof from;
            if (!(ports[port].revents & POLLIN)) continue;
            ssize_t length = recvfrom(ports[port].fd, packet, sizeof packet, 0, (struct sockaddr *)&from, &size);
            if (length < 0) continue;
            uint32_t sender = from.sin_addr.s_addr ^ (uint32_t)from.sin_port << 16;
            size_t reply = port == 0 ? lg_packets_on_packet(&device, clock_ns(), sender, packet, (size_t)length)
                           : lg_stamp_on_packet(&stamp, clock_ns(), sender, packet, (size_t)length) ? (size_t)length
                                                                                                    : 0;
            if (reply > 0 && port == 1) lg_stamp_set_sent(packet, reply, clock_ns());
            if (reply > 0) sendto(ports[port].fd, packet, reply, 0, (struct sockaddr *)&from, size);
        }
    }
    return 1;
}
