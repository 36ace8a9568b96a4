package interop.clients;

import interop.Lines;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Sends in every way of RocketMQ's producer; a body is the way and a number, and the way is the tag. */
public final class Producing {
    private static final int EACH = 5;
    private static final int LEVEL_1S = 1;
    private static final int LONGEST_MS = 60_000;

    private Producing() {
    }

    /** Sends five messages in each way with a producer that traces, and a transaction of each kind; prints each. */
    public static void run(String nameServer, String topic) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("producing", true, null);
        producer.setNamesrvAddr(nameServer);
        producer.setSendMsgTimeout(LONGEST_MS);
        producer.start();
        for (int i = 0; i < EACH; i++) {
            print("sync", i, producer.send(message(topic, "sync", i)));
        }
        async(producer, topic);
        for (int i = 0; i < EACH; i++) {
            producer.sendOneway(message(topic, "oneway", i));
        }
        List<Message> batch = new ArrayList<>();
        for (int i = 0; i < EACH; i++) {
            batch.add(message(topic, "batch", i));
        }
        print("batch", 0, producer.send(batch));
        for (int i = 0; i < EACH; i++) {
            Message delayed = message(topic, "delayed", i);
            delayed.setDelayTimeLevel(LEVEL_1S);
            print("delayed", i, producer.send(delayed));
        }
        transactions(nameServer, topic); // takes seconds, while the traces go out: a shutdown loses those under way
        producer.shutdown();
    }

    private static void async(DefaultMQProducer producer, String topic) throws Exception {
        CountDownLatch left = new CountDownLatch(EACH);
        for (int i = 0; i < EACH; i++) {
            int number = i;
            producer.send(message(topic, "async", i), new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    print("async", number, result);
                    left.countDown();
                }

                @Override
                public void onException(Throwable failure) {
                    failure.printStackTrace();
                }
            });
        }
        await(left, "callbacks");
    }

    /** One is committed, one rolled back, one left open: the broker asks for it, and it is committed. */
    private static void transactions(String nameServer, String topic) throws Exception {
        CountDownLatch asked = new CountDownLatch(1);
        TransactionMQProducer producer = new TransactionMQProducer("transacting");
        producer.setNamesrvAddr(nameServer);
        producer.setSendMsgTimeout(LONGEST_MS);
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object state) {
                return (LocalTransactionState) state;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                Lines.print("asked", "body", new String(message.getBody(), StandardCharsets.UTF_8));
                asked.countDown();
                return LocalTransactionState.COMMIT_MESSAGE;
            }
        });
        producer.start();
        print("committed", 0, producer.sendMessageInTransaction(
            message(topic, "committed", 0), LocalTransactionState.COMMIT_MESSAGE));
        print("rolled-back", 0, producer.sendMessageInTransaction(
            message(topic, "rolled-back", 0), LocalTransactionState.ROLLBACK_MESSAGE));
        print("open", 0, producer.sendMessageInTransaction(
            message(topic, "open", 0), LocalTransactionState.UNKNOW));
        await(asked, "question about a transaction");
        TimeUnit.SECONDS.sleep(1); // the answer is sent one way
        producer.shutdown();
    }

    private static void await(CountDownLatch latch, String what) throws Exception {
        if (!latch.await(LONGEST_MS, TimeUnit.MILLISECONDS)) {
            throw new IllegalStateException("did not come: " + what);
        }
    }

    private static Message message(String topic, String way, int number) {
        String body = way + " " + number;
        Message message = new Message(topic, way, body.replace(' ', '-'), body.getBytes(StandardCharsets.UTF_8));
        message.putUserProperty("number", String.valueOf(number));
        return message;
    }

    private static void print(String way, int number, SendResult result) {
        Lines.print("sent", "way", way, "number", number, "id", result.getMsgId(),
            "status", result.getSendStatus().name());
    }
}
