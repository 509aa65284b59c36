package csi

import (
	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/encoding/protowire"

	"seedlet.dev/world"
)

// volumeCondition is the wire value of VOLUME_CONDITION, which CSI 1.13 has removed. The kubelet of
// Kubernetes 1.36 speaks CSI 1.9, and knows no other health of volumes.
const volumeCondition spec.NodeServiceCapability_RPC_Type = 4

// The fields of the condition of a volume before CSI 1.13.
const (
	conditionField = 2 // of NodeGetVolumeStatsResponse
	abnormalField  = 1 // of VolumeCondition
	messageField   = 2 // of VolumeCondition
)

// conditionOf returns the condition of a volume, which is a field that this version of the messages
// does not have; nil if the answer has none that is understood.
func conditionOf(answer *spec.NodeGetVolumeStatsResponse) *world.CSIVolumeCondition {
	var condition *world.CSIVolumeCondition
	fields := []byte(answer.ProtoReflect().GetUnknown())
	for len(fields) > 0 {
		field, kind, n := protowire.ConsumeTag(fields)
		if n < 0 {
			return nil
		}
		fields = fields[n:]
		if field == conditionField && kind == protowire.BytesType {
			text, size := protowire.ConsumeBytes(fields)
			if size < 0 {
				return nil
			}
			condition = decodeCondition(text)
		}
		if n = protowire.ConsumeFieldValue(field, kind, fields); n < 0 {
			return nil
		}
		fields = fields[n:]
	}
	return condition
}

// decodeCondition decodes a VolumeCondition; nil if it is not understood.
func decodeCondition(fields []byte) *world.CSIVolumeCondition {
	condition := &world.CSIVolumeCondition{}
	for len(fields) > 0 {
		field, kind, n := protowire.ConsumeTag(fields)
		if n < 0 {
			return nil
		}
		fields = fields[n:]
		switch {
		case field == abnormalField && kind == protowire.VarintType:
			abnormal, _ := protowire.ConsumeVarint(fields)
			condition.Abnormal = abnormal != 0
		case field == messageField && kind == protowire.BytesType:
			condition.Message, _ = protowire.ConsumeString(fields)
		}
		if n = protowire.ConsumeFieldValue(field, kind, fields); n < 0 {
			return nil
		}
		fields = fields[n:]
	}
	return condition
}
