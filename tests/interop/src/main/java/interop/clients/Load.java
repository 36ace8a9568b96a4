package interop.clients;

import interop.Lines;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

/** How fast RocketMQ's own client is: each command prints one span, of messages and nanoseconds, after a warm-up. */
public final class Load {
    private static final int WARM_UP = 5;
    private static final long LONGEST_S = 170;

    private Load() {
    }

    /** Sends one by one; the threads share a producer. */
    public static void send(String nameServer, String topic, int senders, int messages, int bodyBytes) throws Exception {
        DefaultMQProducer producer = producer(nameServer);
        sendAll(producer, topic, senders, messages / WARM_UP, bodyBytes);
        long begun = System.nanoTime();
        int sent = sendAll(producer, topic, senders, messages, bodyBytes);
        print(sent, begun, System.nanoTime());
        producer.shutdown();
    }

    /** Sends so many messages a second, one by one; prints how long they took from when each was due, in ns. */
    public static void latency(String nameServer, String topic, int rate, int seconds, int bodyBytes) throws Exception {
        DefaultMQProducer producer = producer(nameServer);
        sendAt(producer, topic, rate, rate * seconds / WARM_UP, bodyBytes);
        long[] took = sendAt(producer, topic, rate, rate * seconds, bodyBytes);
        producer.shutdown();
        Arrays.sort(took);
        Lines.print("latency", "messages", took.length, "median_ns", took[took.length / 2],
            "p99_ns", took[took.length * 99 / 100], "longest_ns", took[took.length - 1]);
    }

    private static long[] sendAt(DefaultMQProducer producer, String topic, int rate, int messages, int bodyBytes)
        throws Exception {
        long[] took = new long[messages];
        byte[] body = new byte[bodyBytes];
        long begun = System.nanoTime();
        for (int count = 0; count < messages; count++) {
            long due = begun + count * 1_000_000_000L / rate;
            for (long left = due - System.nanoTime(); left > 0; left = due - System.nanoTime()) {
                LockSupport.parkNanos(left);
            }
            producer.send(new Message(topic, "created", "order-" + count % 1024, body));
            took[count] = System.nanoTime() - due;
        }
        return took;
    }

    /** Sends batches one after the other. */
    public static void batches(String nameServer, String topic, int size, int messages, int bodyBytes) throws Exception {
        DefaultMQProducer producer = producer(nameServer);
        sendBatches(producer, topic, size, messages / WARM_UP, bodyBytes);
        long begun = System.nanoTime();
        int sent = sendBatches(producer, topic, size, messages, bodyBytes);
        print(sent, begun, System.nanoTime());
        producer.shutdown();
    }

    /** Consumes with a listener that does nothing; the span begins with the first message. */
    public static void consume(String nameServer, String group, String topic, int expected, int threads)
        throws Exception {
        taking(nameServer, group + "-warm", topic, expected / WARM_UP, threads);
        long[] span = taking(nameServer, group, topic, expected, threads);
        print(expected, span[0], span[1]);
    }

    private static long[] taking(String nameServer, String group, String topic, int expected, int threads)
        throws Exception {
        AtomicInteger taken = new AtomicInteger();
        AtomicLong begun = new AtomicLong();
        AtomicLong ended = new AtomicLong();
        CountDownLatch done = new CountDownLatch(1);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(nameServer);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeThreadMin(threads);
        consumer.setConsumeThreadMax(threads);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            begun.compareAndSet(0, System.nanoTime());
            if (taken.addAndGet(messages.size()) >= expected) {
                ended.compareAndSet(0, System.nanoTime());
                done.countDown();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        if (!done.await(LONGEST_S, TimeUnit.SECONDS)) {
            throw new IllegalStateException("only " + taken.get() + " of " + expected + " came");
        }
        consumer.shutdown();
        return new long[] {begun.get(), ended.get()};
    }

    private static DefaultMQProducer producer(String nameServer) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("load");
        producer.setNamesrvAddr(nameServer);
        producer.start();
        return producer;
    }

    private static int sendAll(DefaultMQProducer producer, String topic, int senders, int messages, int bodyBytes)
        throws Exception {
        AtomicInteger sent = new AtomicInteger();
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < senders; i++) {
            Thread thread = new Thread(() -> {
                byte[] body = new byte[bodyBytes];
                try {
                    for (int count = 0; count < messages / senders; count++) {
                        producer.send(new Message(topic, "created", "order-" + count % 1024, body));
                        sent.incrementAndGet();
                    }
                } catch (Exception failure) {
                    throw new IllegalStateException(failure);
                }
            });
            thread.start();
            threads.add(thread);
        }
        for (Thread thread : threads) {
            thread.join();
        }
        if (sent.get() != messages / senders * senders) {
            throw new IllegalStateException("only " + sent.get() + " of " + messages + " were sent");
        }
        return sent.get();
    }

    private static int sendBatches(DefaultMQProducer producer, String topic, int size, int messages, int bodyBytes)
        throws Exception {
        byte[] body = new byte[bodyBytes];
        int sent = 0;
        while (sent < messages) {
            List<Message> batch = new ArrayList<>(size);
            for (int i = 0; i < size; i++) {
                batch.add(new Message(topic, "created", "order-" + (sent + i) % 1024, body));
            }
            producer.send(batch);
            sent += size;
        }
        return sent;
    }

    private static void print(int messages, long begun, long ended) {
        Lines.print("span", "messages", messages, "begun_ns", begun, "ended_ns", ended);
    }
}
