package interop.clients;

import interop.Lines;
import java.nio.charset.StandardCharsets;
import java.util.List;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.RPCHook;

/** Messages that are looked for with an access key: by key, by unique id and by offset message id. */
public final class Queries {
    private static final int MOST = 32;

    private Queries() {
    }

    /** Sends one message with a key, and finds it in every way of a client; prints the id of what each way found. */
    public static void run(String nameServer, String topic, String key, String accessKey, String secretKey)
        throws Exception {
        RPCHook hook = hook(accessKey, secretKey);
        DefaultMQProducer producer = new DefaultMQProducer("interop-queries", hook);
        producer.setNamesrvAddr(nameServer);
        producer.start();
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("interop-queriers", hook);
        consumer.setNamesrvAddr(nameServer);
        consumer.start();
        SendResult sent = producer.send(new Message(topic, "tag", key, "body".getBytes(StandardCharsets.UTF_8)));
        Lines.print("sent", "id", sent.getMsgId());
        long end = Long.MAX_VALUE;
        found("producer, by key", producer.queryMessage(topic, key, MOST, 0, end).getMessageList());
        found("consumer, by key", consumer.queryMessage(topic, key, MOST, 0, end).getMessageList());
        found("producer, by id", List.of(producer.viewMessage(topic, sent.getMsgId())));
        found("consumer, by id", List.of(consumer.viewMessage(topic, sent.getMsgId())));
        found("producer, by place", List.of(producer.viewMessage(topic, sent.getOffsetMsgId())));
        found("consumer, by place", List.of(consumer.viewMessage(topic, sent.getOffsetMsgId())));
        consumer.shutdown();
        producer.shutdown();
    }

    private static void found(String way, List<MessageExt> messages) {
        for (MessageExt message : messages) {
            Lines.print("found", "way", way, "id", message.getMsgId(), "unique",
                message.getProperty("UNIQ_KEY"), "body", new String(message.getBody(), StandardCharsets.UTF_8));
        }
    }

    /** Returns the hook of the ACL module, or of the client, where 5.x has it; the store alone has neither. */
    private static RPCHook hook(String accessKey, String secretKey) throws ReflectiveOperationException {
        Class<?> credentials = Class.forName("org.apache.rocketmq.acl.common.SessionCredentials");
        Object given = credentials.getConstructor(String.class, String.class).newInstance(accessKey, secretKey);
        Class<?> hook = Class.forName("org.apache.rocketmq.acl.common.AclClientRPCHook");
        return (RPCHook) hook.getConstructor(credentials).newInstance(given);
    }
}
