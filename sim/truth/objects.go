package truth

import (
	"time"

	"seedlet.dev/world"
)

// Kinds of facts about objects of the API server, as stored. The fact has a Write.
const (
	ObjectCreated Kind = "ObjectMade"
	ObjectUpdated Kind = "ObjectWritten"
	ObjectDeleted Kind = "ObjectRemoved"
)

// TokenIssued is the kind of the fact that the API server has issued a token: Token, Audience,
// Expires.
const TokenIssued Kind = "TokenMade"

// WroteNothing is the kind of the fact that the agent has written what was already there: Path is
// the file or cgroup, or the resource, namespace and name of the object.
const WroteNothing Kind = "WroteNothing"

// Write is one change of an object of the API server. The objects must not be changed.
type Write struct {
	Resource        world.Resource
	Namespace, Name string
	Before, After   world.Object // empty before the creation, and after the deletion
	Status          bool         // through the status subresource
	Incarnation     int          // the incarnation of the agent that wrote; zero: another client
	Client          string       // the other client
	SentAt          time.Time    // when the agent sent the request; zero: another client
}
