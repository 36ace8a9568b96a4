package interop;

import java.nio.charset.StandardCharsets;
import java.util.List;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;

/** Sends messages with this body to places: `TOPIC:QUEUE_ID:KEY`. */
final class Sending {
    private Sending() {
    }

    static void run(String nameServer, String body, List<String> placesAndKeys) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("sending");
        producer.setNamesrvAddr(nameServer);
        producer.start();
        for (String placeAndKey : placesAndKeys) {
            String[] parts = placeAndKey.split(":");
            Message message = new Message(parts[0], "", parts[2], body.getBytes(StandardCharsets.UTF_8));
            int queueId = Integer.parseInt(parts[1]);
            SendStatus status = producer.send(message, Sending::queue, queueId).getSendStatus();
            if (status != SendStatus.SEND_OK) {
                throw new IllegalStateException("not stored: " + placeAndKey + ": " + status);
            }
        }
        producer.shutdown();
    }

    private static MessageQueue queue(List<MessageQueue> queues, Message message, Object queueId) {
        return queues.stream().filter(queue -> queue.getQueueId() == (Integer) queueId).findFirst().orElseThrow();
    }
}
