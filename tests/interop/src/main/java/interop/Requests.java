package interop;

import java.nio.charset.StandardCharsets;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Requests and replies by RocketMQ's own client. */
final class Requests {
    private static final int LONGEST_S = 60;

    private Requests() {
    }

    /** Sends one request and prints its reply. */
    static void ask(String nameServer, String group, String topic, String body) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(group);
        producer.setNamesrvAddr(nameServer);
        producer.start();
        Message question = new Message(topic, body.getBytes(StandardCharsets.UTF_8));
        Message reply = producer.request(question, TimeUnit.SECONDS.toMillis(LONGEST_S));
        Lines.print("reply", (MessageExt) reply);
        producer.shutdown();
    }

    /** Replies to so many requests: with the body that each has, and "re " in front. */
    static void reply(String nameServer, String group, int expected, String topic) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(group + "-replies");
        producer.setNamesrvAddr(nameServer);
        producer.start();
        CountDownLatch left = new CountDownLatch(expected);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(nameServer);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt request : messages) {
                String body = "re " + new String(request.getBody(), StandardCharsets.UTF_8);
                try {
                    Message reply = MessageUtil.createReplyMessage(request, body.getBytes(StandardCharsets.UTF_8));
                    Lines.print("replied", "status", producer.send(reply, 10_000).getSendStatus().name());
                } catch (Exception failure) {
                    throw new IllegalStateException(failure);
                }
                left.countDown();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        if (!left.await(LONGEST_S, TimeUnit.SECONDS)) {
            throw new IllegalStateException(left.getCount() + " requests did not come");
        }
        consumer.shutdown();
        producer.shutdown();
    }
}
