package interop;

import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Answers a broker that asks about transactions which others have begun: commits those whose body says so. */
final class Answering {
    private Answering() {
    }

    static void run(String nameServer, String group, int expected) throws Exception {
        Map<String, MessageExt> asked = new ConcurrentHashMap<>();
        TransactionMQProducer producer = new TransactionMQProducer(group);
        producer.setNamesrvAddr(nameServer);
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object state) {
                throw new IllegalStateException("nothing is begun here");
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                String body = new String(message.getBody(), StandardCharsets.UTF_8);
                asked.putIfAbsent(message.getTransactionId(), message);
                return body.startsWith("commit")
                    ? LocalTransactionState.COMMIT_MESSAGE : LocalTransactionState.ROLLBACK_MESSAGE;
            }
        });
        producer.start();
        // The broker knows the producers that have sent something
        producer.send(new Message("Warmup", "here".getBytes(StandardCharsets.UTF_8)));
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(90);
        while (asked.size() < expected) {
            if (System.nanoTime() > end) {
                throw new IllegalStateException("asked about " + asked.size() + " of " + expected);
            }
            TimeUnit.MILLISECONDS.sleep(50);
        }
        TimeUnit.SECONDS.sleep(2); // the answers are sent one way
        for (MessageExt message : asked.values()) {
            Lines.print("asked", "topic", message.getTopic(), "id", message.getTransactionId(),
                "body", new String(message.getBody(), StandardCharsets.UTF_8));
        }
        producer.shutdown();
    }
}
