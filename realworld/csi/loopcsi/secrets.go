package loopcsi

import (
	"context"
	"fmt"
	"path"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// secretKey is the key of the secret that calls may need.
const secretKey = "passphrase"

// takesSecrets reports whether CSI has a call of a name whose request has secrets.
func takesSecrets(call string) bool {
	services := csi.File_csi_proto.Services()
	for i := range services.Len() {
		method := services.Get(i).Methods().ByName(protoreflect.Name(call))
		if method != nil && method.Input().Fields().ByName("secrets") != nil {
			return true
		}
	}
	return false
}

func checkSecretCalls(secrets map[string]string) error {
	for call, value := range secrets { //ordered: any of the errors
		if !takesSecrets(call) {
			return fmt.Errorf("no call %q of CSI has secrets", call)
		}
		if value == "" {
			return fmt.Errorf("the secret of %s is empty", call)
		}
	}
	return nil
}

// demandSecrets refuses calls without the secret that they need, by call. The code is the one of
// the CSI specification for a caller that should "fix or add secrets".
func demandSecrets(needed map[string]string) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, request any, info *grpc.UnaryServerInfo,
		handle grpc.UnaryHandler) (any, error) {
		call := path.Base(info.FullMethod)
		want, needs := needed[call]
		r, has := request.(interface{ GetSecrets() map[string]string })
		if needs && (!has || r.GetSecrets()[secretKey] != want) {
			return nil, status.Errorf(codes.Unauthenticated, "%s needs the right secret %q", call,
				secretKey)
		}
		return handle(ctx, request)
	}
}
