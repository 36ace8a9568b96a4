package interop;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.store.OffsetStore;
import org.apache.rocketmq.client.consumer.store.ReadOffsetType;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Consumers of a group, which go on from its offsets. */
final class Consumption {
    private static final long QUIET_MS = 3_000;
    private static final long LONGEST_MS = 60_000;
    private static final long COMMIT_MS = 5_000;

    private Consumption() {
    }

    /** Takes messages until the expected number came, or the time is up, and nothing more comes for a while. */
    static void push(String nameServer, String group, int expected, List<String> topics) throws Exception {
        AtomicInteger taken = new AtomicInteger();
        AtomicLong last = new AtomicLong(System.nanoTime());
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(nameServer);
        for (String topic : topics) {
            consumer.subscribe(topic, "*");
        }
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                Lines.print("message", message);
                taken.incrementAndGet();
                last.set(System.nanoTime());
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        long begin = System.nanoTime();
        while (taken.get() < expected && millisSince(begin) < LONGEST_MS || millisSince(last.get()) < QUIET_MS) {
            TimeUnit.MILLISECONDS.sleep(50);
        }
        commit(consumer, topics);
        consumer.shutdown();
    }

    /** Commits until the broker has it: a shutdown asks it once, wants no answer, and may close the connection first. */
    private static void commit(DefaultMQPushConsumer consumer, List<String> topics) throws Exception {
        OffsetStore offsets = consumer.getDefaultMQPushConsumerImpl().getOffsetStore();
        Map<MessageQueue, Long> done = new HashMap<>();
        for (String topic : topics) {
            done.putAll(offsets.cloneOffsetTable(topic));
        }
        long begin = System.nanoTime();
        do {
            done.forEach((queue, offset) -> offsets.updateOffset(queue, offset, false)); // reading has replaced it
            offsets.persistAll(done.keySet());
            TimeUnit.MILLISECONDS.sleep(50);
        } while (!areStored(offsets, done) && millisSince(begin) < COMMIT_MS); // a read-only server never has it
    }

    private static boolean areStored(OffsetStore offsets, Map<MessageQueue, Long> done) {
        return done.entrySet().stream().allMatch(
            each -> offsets.readOffset(each.getKey(), ReadOffsetType.READ_FROM_STORE) >= each.getValue());
    }

    static void pull(String nameServer, String group, List<String> topics) throws Exception {
        DefaultMQPullConsumer consumer = Inspection.consumer(nameServer, group);
        for (String topic : topics) {
            for (MessageQueue queue : Inspection.queues(consumer, topic)) {
                long committed = Math.max(0, consumer.fetchConsumeOffset(queue, true));
                if (committed < consumer.maxOffset(queue)) {
                    Inspection.from(consumer, queue, committed).forEach(message -> Lines.print("message", message));
                }
            }
        }
        consumer.shutdown();
    }

    private static long millisSince(long nanoTime) {
        return TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - nanoTime);
    }
}
