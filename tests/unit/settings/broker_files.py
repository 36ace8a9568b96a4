"""Files as a RocketMQ broker has written them."""

from __future__ import annotations

ONE_TOPIC = b"""{
	"dataVersion":{
		"counter":1,
		"timestamp":1795208291936
	},
	"topicConfigTable":{
		"TopicA":{
			"order":false,
			"perm":6,
			"readQueueNums":4,
			"topicFilterType":"SINGLE_TAG",
			"topicName":"TopicA",
			"topicSysFlag":0,
			"writeQueueNums":4
		}
	}
}"""

BROKER_TOPICS = b"""{
	"dataVersion":{
		"counter":5,
		"timestamp":1795208292896
	},
	"topicConfigTable":{
		"TopicA":{
			"order":false,
			"perm":6,
			"readQueueNums":4,
			"topicFilterType":"SINGLE_TAG",
			"topicName":"TopicA",
			"topicSysFlag":0,
			"writeQueueNums":4
		},
		"SCHEDULE_TOPIC_XXXX":{
			"order":false,
			"perm":6,
			"readQueueNums":18,
			"topicFilterType":"SINGLE_TAG",
			"topicName":"SCHEDULE_TOPIC_XXXX",
			"topicSysFlag":0,
			"writeQueueNums":18
		},
		"%RETRY%G1":{
			"order":false,
			"perm":6,
			"readQueueNums":1,
			"topicFilterType":"SINGLE_TAG",
			"topicName":"%RETRY%G1",
			"topicSysFlag":0,
			"writeQueueNums":1
		},
		"broker-a":{
			"order":false,
			"perm":7,
			"readQueueNums":1,
			"topicFilterType":"SINGLE_TAG",
			"topicName":"broker-a",
			"topicSysFlag":0,
			"writeQueueNums":1
		},
		"BenchmarkTest":{
			"order":false,
			"perm":6,
			"readQueueNums":1024,
			"topicFilterType":"SINGLE_TAG",
			"topicName":"BenchmarkTest",
			"topicSysFlag":0,
			"writeQueueNums":1024
		}
	}
}"""
"""From a 4.9.8 broker, half of its topics."""

BROKER_OFFSETS = b"""{
	"offsetTable":{
		"TopicA@G1":{0:5,1:7
		},
		"RMQ_SYS_TRANS_OP_HALF_TOPIC@CID_RMQ_SYS_TRANS":{0:2
		},
		"RMQ_SYS_TRANS_HALF_TOPIC@CID_RMQ_SYS_TRANS":{0:5
		},
		"%RETRY%G1@G1":{0:0
		}
	}
}"""
"""From the same broker, byte for byte."""
