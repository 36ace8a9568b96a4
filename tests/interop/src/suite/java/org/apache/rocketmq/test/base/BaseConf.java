package org.apache.rocketmq.test.base;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.common.protocol.body.ClusterInfo;
import org.apache.rocketmq.namesrv.NamesrvController;
import org.apache.rocketmq.test.client.rmq.RMQAsyncSendProducer;
import org.apache.rocketmq.test.client.rmq.RMQNormalConsumer;
import org.apache.rocketmq.test.client.rmq.RMQNormalProducer;
import org.apache.rocketmq.test.client.rmq.RMQTransactionalProducer;
import org.apache.rocketmq.test.clientinterface.AbstractMQConsumer;
import org.apache.rocketmq.test.clientinterface.AbstractMQProducer;
import org.apache.rocketmq.test.factory.ConsumerFactory;
import org.apache.rocketmq.test.listener.AbstractListener;
import org.apache.rocketmq.test.util.MQAdmin;
import org.apache.rocketmq.test.util.MQRandomUtils;

/**
 * What RocketMQ's integration tests extend, in place of their own class of this name: the server is another process, whose
 * address is the property {@code server.under.test}.
 *
 * <p>The class path has this one first. Its members are those that {@code javap -protected} shows of the other, which starts
 * a name server and two brokers in this Java.
 */
public class BaseConf {
    public static String nsAddr = System.getProperty("server.under.test");
    protected static String broker1Name;
    protected static String broker2Name;
    protected static String clusterName;
    protected static int brokerNum;
    protected static int waitTime = 5;
    protected static int consumeTime = 120_000;
    protected static NamesrvController namesrvController;
    protected static BrokerController brokerController1;
    protected static BrokerController brokerController2;
    protected static List<Object> mqClients = Collections.synchronizedList(new ArrayList<>());
    protected static boolean debug;

    static {
        ClusterInfo cluster = MQAdmin.getCluster(nsAddr);
        List<String> brokers = new ArrayList<>(cluster.getBrokerAddrTable().keySet());
        Collections.sort(brokers);
        clusterName = cluster.getClusterAddrTable().keySet().iterator().next();
        brokerNum = brokers.size();
        broker1Name = brokers.get(0);
        broker2Name = brokers.get(brokerNum - 1); // the same one when there is but one
    }

    public static String initTopic() {
        return initTopicWithName(MQRandomUtils.getRandomTopic());
    }

    public static String initTopicWithName(String topic) {
        IntegrationTestBase.initTopic(topic, nsAddr, clusterName);
        return topic;
    }

    public static String initConsumerGroup() {
        return initConsumerGroup(MQRandomUtils.getRandomConsumerGroup());
    }

    public static String initConsumerGroup(String group) {
        MQAdmin.createSub(nsAddr, clusterName, group);
        return group;
    }

    public static RMQNormalProducer getProducer(String nameServer, String topic) {
        return getProducer(nameServer, topic, false);
    }

    public static RMQNormalProducer getProducer(String nameServer, String topic, boolean useTLS) {
        return kept(new RMQNormalProducer(nameServer, topic, useTLS));
    }

    public static RMQNormalProducer getProducer(String nameServer, String topic, String group, String instance) {
        return kept(new RMQNormalProducer(nameServer, topic, group, instance));
    }

    public static RMQTransactionalProducer getTransactionalProducer(
        String nameServer, String topic, TransactionListener listener) {
        return kept(new RMQTransactionalProducer(nameServer, topic, false, listener));
    }

    public static RMQAsyncSendProducer getAsyncProducer(String nameServer, String topic) {
        return kept(new RMQAsyncSendProducer(nameServer, topic));
    }

    public static RMQNormalConsumer getConsumer(
        String nameServer, String topic, String expression, AbstractListener listener) {
        return getConsumer(nameServer, topic, expression, listener, false);
    }

    public static RMQNormalConsumer getConsumer(
        String nameServer, String topic, String expression, AbstractListener listener, boolean useTLS) {
        return getConsumer(nameServer, initConsumerGroup(), topic, expression, listener, useTLS);
    }

    public static RMQNormalConsumer getConsumer(
        String nameServer, String group, String topic, String expression, AbstractListener listener) {
        return getConsumer(nameServer, group, topic, expression, listener, false);
    }

    public static RMQNormalConsumer getConsumer(
        String nameServer, String group, String topic, String expression, AbstractListener listener, boolean useTLS) {
        RMQNormalConsumer consumer =
            ConsumerFactory.getRMQNormalConsumer(nameServer, group, topic, expression, listener, useTLS);
        mqClients.add(consumer);
        return consumer;
    }

    /** Ends every client that the tests of a class have made. */
    public static void shutdown() {
        for (Object client : mqClients.toArray()) {
            if (client instanceof AbstractMQProducer) {
                ((AbstractMQProducer) client).shutdown();
            } else {
                ((AbstractMQConsumer) client).shutdown();
            }
        }
        mqClients.clear();
    }

    private static <T extends AbstractMQProducer> T kept(T producer) {
        if (debug) {
            producer.setDebug();
        }
        mqClients.add(producer);
        return producer;
    }
}
