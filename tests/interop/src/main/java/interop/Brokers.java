package interop;

import java.net.InetSocketAddress;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.common.message.MessageQueue;

/** What the public methods of a consumer do not tell. */
final class Brokers {
    private Brokers() {
    }

    /** Where a queue's broker listens. */
    static InetSocketAddress address(DefaultMQPullConsumer consumer, MessageQueue queue) {
        String[] hostAndPort = client(consumer).findBrokerAddressInPublish(queue.getBrokerName()).split(":");
        return new InetSocketAddress(hostAndPort[0], Integer.parseInt(hostAndPort[1]));
    }

    /** Finds messages by one of their keys, or by the unique key, which queryMessage leaves out. */
    static QueryResult query(DefaultMQPullConsumer consumer, String topic, String key, boolean isUnique)
        throws MQClientException, InterruptedException {
        if (isUnique) {
            return client(consumer).getMQAdminImpl().queryMessageByUniqKey(topic, key, 64, 0, Long.MAX_VALUE);
        }
        return consumer.queryMessage(topic, key, 64, 0, Long.MAX_VALUE);
    }

    private static MQClientInstance client(DefaultMQPullConsumer consumer) {
        return consumer.getDefaultMQPullConsumerImpl().getRebalanceImpl().getmQClientFactory();
    }
}
