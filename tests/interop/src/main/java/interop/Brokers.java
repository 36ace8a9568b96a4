package interop;

import java.net.InetSocketAddress;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.exception.RemotingException;

/** What the public methods of a consumer do not tell. */
final class Brokers {
    private Brokers() {
    }

    /** Waits until the name server knows a broker, whose topics it learns with the broker. */
    static void awaitRoute(String nameServer, int seconds) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("interop-route");
        producer.setNamesrvAddr(nameServer);
        producer.start();
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(seconds);
        while (!isRegistered(producer)) {
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException("no route from " + nameServer + " after " + seconds + " s");
            }
            Thread.sleep(50);
        }
        producer.shutdown();
    }

    private static boolean isRegistered(DefaultMQProducer producer) throws InterruptedException, RemotingException {
        MQClientInstance client = producer.getDefaultMQProducerImpl().getmQClientFactory();
        try {
            return !client.getMQClientAPIImpl().getBrokerClusterInfo(3_000).getBrokerAddrTable().isEmpty();
        } catch (MQBrokerException notYet) {
            return false;
        }
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
