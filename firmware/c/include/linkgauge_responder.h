/* The far end of a linkgauge measurement for firmware in C. See docs/firmware.md.
 *
 * The caller owns the memory: every state is a struct of fixed size, placed where the caller likes, 8-byte aligned, and set
 * up by its init function. Nothing allocates, blocks, or calls back. One state belongs to one thread at a time. Times are
 * nanoseconds of any clock that never goes back. */
#ifndef LINKGAUGE_RESPONDER_H
#define LINKGAUGE_RESPONDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Room for output with which a stream goes on in any case. */
#define LG_REPORT_BYTES 56
/* Room for a frame of LINX with its Ethernet header. */
#define LG_LINX_FRAME_BYTES 1514
/* The largest message of LINX that is echoed. */
#define LG_LINX_MESSAGE_BYTES 16388

typedef struct { uint64_t state[24]; } lg_stream;    /* --protocol device on a stream, as a UART is */
typedef struct { uint64_t state[64]; } lg_packets;   /* --protocol device in packets, 4 clients at once */
typedef struct { uint64_t state[16]; } lg_stamp;     /* --protocol stamp, 8 sessions */
typedef struct { uint64_t state[1]; } lg_chargen;    /* --protocol chargen */
typedef struct { uint64_t state[2240]; } lg_linx;    /* linx+eth:// */

/* max_message_bytes: the largest message that the device takes, at most 65535; tick_ns: by how much its clock advances. */
void lg_stream_init(lg_stream *stream, uint32_t max_message_bytes, uint32_t tick_ns);
/* Handles received bytes. Returns how many bytes of output to send; *consumed is how many of the input were taken: offer the
 * rest again once there is room. */
size_t lg_stream_on_bytes(lg_stream *stream, uint64_t now_ns, const uint8_t *input, size_t length, size_t *consumed,
                          uint8_t *output, size_t room);

void lg_packets_init(lg_packets *packets, uint32_t max_message_bytes, uint32_t tick_ns);
/* Handles a received packet. Its reply replaces it; returns its length, 0: send nothing. sender tells senders apart. */
size_t lg_packets_on_packet(lg_packets *packets, uint64_t now_ns, uint32_t sender, uint8_t *packet, size_t length);

void lg_stamp_init(lg_stamp *stamp, uint32_t tick_ns);
/* As above; the reply has the length of the request. Call lg_stamp_set_sent when it leaves. */
bool lg_stamp_on_packet(lg_stamp *stamp, uint64_t received_ns, uint32_t sender, uint8_t *packet, size_t length);
void lg_stamp_set_sent(uint8_t *packet, size_t length, uint64_t sent_ns);

void lg_chargen_init(lg_chargen *chargen);
void lg_chargen_fill(lg_chargen *chargen, uint8_t *output, size_t length);

void lg_linx_init(lg_linx *linx, const uint8_t mac[6]);
/* Handles a received Ethernet frame, with its header; others than LINX's are ignored. */
void lg_linx_on_frame(lg_linx *linx, uint64_t now_ns, const uint8_t *frame, size_t length);
/* Writes the next frame to send, with its header, and returns its length; 0: nothing to send. Call it until then after each
 * frame, and when lg_linx_next_due has come. */
size_t lg_linx_poll(lg_linx *linx, uint64_t now_ns, uint8_t frame[LG_LINX_FRAME_BYTES]);
uint64_t lg_linx_next_due(const lg_linx *linx);

#ifdef __cplusplus
}
#endif
#endif
