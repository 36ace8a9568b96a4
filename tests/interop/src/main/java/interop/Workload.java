package interop;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Everything that a broker keeps in a store, in the topics Plain, Batch, Delayed, Retried and Transactions. */
final class Workload {
    private static final int LEVEL_1S = 1;
    private static final int LEVEL_10M = 14;
    private static final int LEVEL_30M = 16;

    private Workload() {
    }

    static void run(String nameServer, int messages) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("senders");
        producer.setNamesrvAddr(nameServer);
        producer.start();
        plain(producer, messages);
        batch(producer);
        delayed(producer);
        transactions(nameServer);
        retried(nameServer, producer);
        DefaultMQPullConsumer reader = Inspection.consumer(nameServer, "readers");
        await(reader, "Delayed", 1);
        await(reader, "Transactions", 1);
        await(reader, "%DLQ%retrying", 1);
        reader.shutdown();
        progress(nameServer);
        producer.shutdown();
    }

    private static void plain(DefaultMQProducer producer, int messages) throws Exception {
        for (int i = 0; i < messages; i++) {
            Message message = message("Plain", "plain " + i + " naïve 中文 " + "x".repeat(i * 37 % 400));
            if (i % 5 != 0) {
                message.setTags("tag" + i % 3);
            }
            message.setKeys("k" + i + " shared" + i % 7);
            message.putUserProperty("number", String.valueOf(i));
            message.setFlag(i);
            send(producer, message);
        }
        send(producer, message("Plain", "compressed ".repeat(500))); // the client compresses from 4096 bytes on
        send(producer, new Message("Plain", "TagA", "one", new byte[] {0}));
    }

    private static void batch(DefaultMQProducer producer) throws Exception {
        List<Message> batch = new ArrayList<>();
        for (int i = 0; i < 3; i++) {
            batch.add(new Message("Batch", "tag" + i, "batch" + i, ("batched " + i).getBytes(StandardCharsets.UTF_8)));
        }
        check(producer.send(batch));
    }

    private static void delayed(DefaultMQProducer producer) throws Exception {
        Message soon = new Message("Delayed", "soon", "delayed-soon", "soon".getBytes(StandardCharsets.UTF_8));
        soon.setDelayTimeLevel(LEVEL_1S);
        send(producer, soon);
        Message later = new Message("Delayed", "later", "delayed-later", "later".getBytes(StandardCharsets.UTF_8));
        later.setDelayTimeLevel(LEVEL_10M);
        send(producer, later);
    }

    private static void transactions(String nameServer) throws Exception {
        TransactionMQProducer producer = new TransactionMQProducer("transacting");
        producer.setNamesrvAddr(nameServer);
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object state) {
                return (LocalTransactionState) state;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                return LocalTransactionState.UNKNOW;
            }
        });
        producer.start();
        for (LocalTransactionState state : LocalTransactionState.values()) {
            Message message = new Message("Transactions", "tag", "transaction-" + state,
                state.name().getBytes(StandardCharsets.UTF_8));
            check(producer.sendMessageInTransaction(message, state));
        }
        producer.shutdown();
    }

    /** One message succeeds the second time, one fails until it is a dead letter, one waits for its second time. */
    private static void retried(String nameServer, DefaultMQProducer producer) throws Exception {
        for (String body : List.of("recovers", "dies", "waits")) {
            send(producer, new Message("Retried", "tag", "retried-" + body, body.getBytes(StandardCharsets.UTF_8)));
        }
        Set<String> done = ConcurrentHashMap.newKeySet();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("retrying");
        consumer.setNamesrvAddr(nameServer);
        consumer.subscribe("Retried", "*");
        consumer.setMaxReconsumeTimes(1);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            MessageExt message = messages.get(0);
            String body = new String(message.getBody(), StandardCharsets.UTF_8);
            boolean isSecond = message.getReconsumeTimes() > 0;
            context.setDelayLevelWhenNextConsume(body.equals("waits") ? LEVEL_30M : LEVEL_1S);
            if (isSecond || body.equals("waits")) {
                done.add(body);
            }
            return isSecond && body.equals("recovers")
                ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS : ConsumeConcurrentlyStatus.RECONSUME_LATER;
        });
        consumer.start();
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
        while (done.size() < 3) {
            if (System.nanoTime() > end) {
                throw new IllegalStateException("only these were delivered as often as they should be: " + done);
            }
            TimeUnit.MILLISECONDS.sleep(50);
        }
        consumer.shutdown();
    }

    /** The group "halfway" has consumed half of each queue of Plain, and one message of Batch. */
    private static void progress(String nameServer) throws Exception {
        DefaultMQPullConsumer consumer = Inspection.consumer(nameServer, "halfway");
        for (MessageQueue queue : Inspection.queues(consumer, "Plain")) {
            consumer.getOffsetStore().updateConsumeOffsetToBroker(queue, consumer.maxOffset(queue) / 2, false);
        }
        for (MessageQueue queue : Inspection.queues(consumer, "Batch")) {
            consumer.getOffsetStore().updateConsumeOffsetToBroker(
                queue, Math.min(1, consumer.maxOffset(queue)), false);
        }
        consumer.shutdown();
    }

    private static void await(DefaultMQPullConsumer consumer, String topic, long messages) throws Exception {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
        while (true) {
            long found = 0;
            for (MessageQueue queue : Inspection.queues(consumer, topic)) {
                found += consumer.maxOffset(queue);
            }
            if (found >= messages) {
                return;
            }
            if (System.nanoTime() > end) {
                throw new IllegalStateException(topic + " has fewer than " + messages + " messages");
            }
            TimeUnit.MILLISECONDS.sleep(100);
        }
    }

    private static Message message(String topic, String body) {
        return new Message(topic, body.getBytes(StandardCharsets.UTF_8));
    }

    private static void send(DefaultMQProducer producer, Message message) throws Exception {
        check(producer.send(message));
    }

    private static void check(SendResult result) {
        if (result.getSendStatus() != SendStatus.SEND_OK) {
            throw new IllegalStateException(result.toString());
        }
    }
}
