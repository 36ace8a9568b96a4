package interop;

import java.nio.charset.StandardCharsets;
import java.util.List;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;

/** Sends a long message for each way of compressing that is named, as the client's producer is told to by a property. */
final class Compressing {
    private Compressing() {
    }

    static void run(String nameServer, String topic, List<String> types) throws Exception {
        for (String type : types) {
            System.setProperty("rocketmq.message.compressType", type);
            DefaultMQProducer producer = new DefaultMQProducer("compressing-" + type);
            producer.setNamesrvAddr(nameServer);
            producer.setInstanceName(type);
            producer.start();
            byte[] body = ("by RocketMQ with " + type + " ").repeat(400).getBytes(StandardCharsets.UTF_8);
            if (producer.send(new Message(topic, type, body)).getSendStatus() != SendStatus.SEND_OK) {
                throw new IllegalStateException("not stored: a message compressed with " + type);
            }
            producer.shutdown();
        }
    }
}
