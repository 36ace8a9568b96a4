package interop;

import java.net.InetSocketAddress;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** What a broker serves: offsets, messages by queue, by id and by key. */
final class Inspection {
    private Inspection() {
    }

    static void run(String nameServer, String group, List<String> topics) throws Exception {
        DefaultMQPullConsumer consumer = consumer(nameServer, group);
        try {
            for (String topic : topics) {
                topic(consumer, topic);
            }
        } finally {
            consumer.shutdown();
        }
    }

    static DefaultMQPullConsumer consumer(String nameServer, String group) throws MQClientException {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(group);
        consumer.setNamesrvAddr(nameServer);
        consumer.start();
        return consumer;
    }

    /** Waits until the name server knows the topic: a broker of 5.x says that it is ready before it has registered. */
    static Set<MessageQueue> queues(DefaultMQPullConsumer consumer, String topic) throws Exception {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(30);
        while (true) {
            try {
                return new TreeSet<>(consumer.fetchSubscribeMessageQueues(topic));
            } catch (MQClientException unknownYet) {
                if (System.nanoTime() > end) {
                    throw unknownYet;
                }
                TimeUnit.MILLISECONDS.sleep(200);
            }
        }
    }

    static List<MessageExt> from(DefaultMQPullConsumer consumer, MessageQueue queue, long offset) throws Exception {
        List<MessageExt> messages = new ArrayList<>();
        while (true) {
            PullResult result = consumer.pull(queue, "*", offset, 32);
            if (result.getPullStatus() == PullStatus.FOUND) {
                messages.addAll(result.getMsgFoundList());
            } else if (result.getPullStatus() == PullStatus.NO_NEW_MSG) {
                return messages;
            }
            if (result.getNextBeginOffset() <= offset) {
                throw new IllegalStateException(queue + " at " + offset + ": " + result);
            }
            offset = result.getNextBeginOffset();
        }
    }

    private static void topic(DefaultMQPullConsumer consumer, String topic) throws Exception {
        Map<String, Boolean> keys = new LinkedHashMap<>();
        for (MessageQueue queue : queues(consumer, topic)) {
            long begin = consumer.minOffset(queue);
            Lines.print("queue", "topic", topic, "queue_id", queue.getQueueId(), "begin", begin,
                "end", consumer.maxOffset(queue), "committed", consumer.fetchConsumeOffset(queue, true));
            if (consumer.maxOffset(queue) == begin) {
                continue;
            }
            // An id names the host that stored the message; now another one has it, with the same files
            InetSocketAddress broker = Brokers.address(consumer, queue);
            for (MessageExt message : from(consumer, queue, begin)) {
                Lines.print("message", message);
                String id = MessageDecoder.createMessageId(broker, message.getCommitLogOffset());
                Lines.print("viewed", consumer.viewMessage(topic, id));
                for (String key : Keys.of(message)) {
                    keys.put(key, key.equals(message.getProperty(MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX)));
                }
            }
        }
        for (Map.Entry<String, Boolean> key : keys.entrySet()) {
            Lines.print("key", "topic", topic, "key", key.getKey(),
                "commit_log_offsets", found(consumer, topic, key.getKey(), key.getValue()));
        }
    }

    private static Set<Long> found(DefaultMQPullConsumer consumer, String topic, String key, boolean isUnique)
        throws Exception {
        Set<Long> commitLogOffsets = new TreeSet<>();
        try {
            QueryResult result = Brokers.query(consumer, topic, key, isUnique);
            result.getMessageList().forEach(message -> commitLogOffsets.add(message.getCommitLogOffset()));
        } catch (MQClientException nothingFound) {
            if (nothingFound.getMessage() == null || !nothingFound.getMessage().contains("no message")) {
                throw nothingFound;
            }
        }
        return commitLogOffsets;
    }
}
