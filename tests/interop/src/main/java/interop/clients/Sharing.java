package interop.clients;

import interop.Lines;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/** A push consumer in a group that it shares with others; prints each message as it comes. */
public final class Sharing {
    private static final long LONGEST_S = 170;

    private Sharing() {
    }

    /** Consumes until the file appears. A group whose name begins with "ordered" handles each queue in order. */
    public static void run(String nameServer, String group, String topic, String file) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(nameServer);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        if (group.startsWith("ordered")) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                messages.forEach(Sharing::print);
                return ConsumeOrderlyStatus.SUCCESS;
            });
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                messages.forEach(Sharing::print);
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        }
        consumer.start();
        Lines.print("ready");
        Path stop = Paths.get(file);
        for (long left = LONGEST_S * 20; left > 0 && !Files.exists(stop); left--) {
            TimeUnit.MILLISECONDS.sleep(50);
        }
        consumer.shutdown(); // commits and unlocks
    }

    private static void print(MessageExt message) {
        Lines.print("message", "body", new String(message.getBody()), "broker", message.getBrokerName(),
            "queue_id", message.getQueueId(), "queue_offset", message.getQueueOffset());
    }
}
