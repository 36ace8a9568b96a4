package interop.clients;

import interop.Lines;
import java.util.List;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/** A consumer that prints each message as it comes, and leaves its group when standard input ends. */
public final class Taking {
    private Taking() {
    }

    /**
     * Takes messages in one way: plain, ordered, broadcast, tags, sql92, traced or lite.
     *
     * @param expression the tags or the condition of SQL92; other ways take every message
     */
    public static void run(String nameServer, String group, String topic, String way, String expression)
        throws Exception {
        if (way.equals("lite")) {
            pull(nameServer, group, topic);
        } else {
            push(nameServer, group, topic, way, expression);
        }
    }

    private static void push(String nameServer, String group, String topic, String way, String expression)
        throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group, way.equals("traced"), null);
        consumer.setNamesrvAddr(nameServer);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        if (way.equals("broadcast")) { // the releases have this type in different packages
            consumer.setInstanceName("taking-" + ProcessHandle.current().pid()); // else one client id for all of a host
            consumer.setMessageModel(Enum.valueOf(consumer.getMessageModel().getDeclaringClass(), "BROADCASTING"));
        }
        consumer.subscribe(topic, way.equals("sql92") ? MessageSelector.bySql(expression)
            : MessageSelector.byTag(way.equals("tags") ? expression : "*"));
        if (way.equals("ordered")) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                messages.forEach(Taking::print);
                return ConsumeOrderlyStatus.SUCCESS;
            });
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                messages.forEach(Taking::print);
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        }
        consumer.start();
        Lines.print("ready");
        System.in.readAllBytes();
        consumer.shutdown(); // commits and unlocks
    }

    private static void pull(String nameServer, String group, String topic) throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(group);
        consumer.setNamesrvAddr(nameServer);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.start();
        AtomicBoolean ends = new AtomicBoolean();
        Thread polling = new Thread(() -> {
            while (!ends.get()) {
                List<MessageExt> messages = consumer.poll(200);
                messages.forEach(Taking::print);
            }
        });
        polling.start();
        Lines.print("ready");
        System.in.readAllBytes();
        ends.set(true);
        polling.join();
        consumer.commitSync();
        consumer.shutdown();
    }

    private static void print(MessageExt message) {
        Lines.print("message", "body", new String(message.getBody()), "broker", message.getBrokerName(),
            "queue_id", message.getQueueId(), "queue_offset", message.getQueueOffset(),
            "id", message.getMsgId(), "tags", message.getTags(), "at_ms", System.currentTimeMillis());
    }
}
