/* Names of properties and of topics, each with its size in bytes, and hexadecimal digits.
 *
 * They stand here because only C knows the size of a literal when it compiles. A name is passed by value, in two
 * registers. */
#ifndef RMQ_NAMES_H
#define RMQ_NAMES_H

#include <sys/types.h>

typedef struct {
    const char *text;
    ssize_t size;
} rmq_name;

#define RMQ_NAME(constant, literal) static const rmq_name constant = {literal, sizeof(literal) - 1};

RMQ_NAME(N_CRC, "__CRC32#")
RMQ_NAME(N_DELAY, "DELAY")
RMQ_NAME(N_INNER_NUM, "INNER_NUM")
RMQ_NAME(N_KEYS, "KEYS")
RMQ_NAME(N_REAL_QID, "REAL_QID")
RMQ_NAME(N_REAL_TOPIC, "REAL_TOPIC")
RMQ_NAME(N_RETRY_TOPIC, "RETRY_TOPIC")
RMQ_NAME(N_SHARDING_KEY, "__SHARDINGKEY")
RMQ_NAME(N_TAGS, "TAGS")
RMQ_NAME(N_TIMER_DELIVER_MS, "TIMER_DELIVER_MS")
RMQ_NAME(N_TIMER_DEL_UNIQKEY, "TIMER_DEL_UNIQKEY")
RMQ_NAME(N_TIMER_OUT_MS, "TIMER_OUT_MS")
RMQ_NAME(N_TIMER_QUEUE_OFFSET, "TIMER_QUEUE_OFFSET")
RMQ_NAME(N_TIMER_ROLL_TIMES, "TIMER_ROLL_TIMES")
RMQ_NAME(N_UNIQ_KEY, "UNIQ_KEY")

RMQ_NAME(T_HALF, "RMQ_SYS_TRANS_HALF_TOPIC")
RMQ_NAME(T_OPERATION, "RMQ_SYS_TRANS_OP_HALF_TOPIC")
RMQ_NAME(T_RETRY_PREFIX, "%RETRY%")
RMQ_NAME(T_SCHEDULE, "SCHEDULE_TOPIC_XXXX")
RMQ_NAME(T_TIMER, "rmq_sys_wheel_timer")

static const char HEX[16] = {'0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'A', 'B', 'C', 'D', 'E', 'F'};

#endif
