"""A bucket for tests: the few calls of Google Cloud Storage's JSON API that
TensorStore, gcsfs and google-cloud-storage make, answered from memory.

It is no object store: nothing is checked but generations, and listings come
whole. What it can't do it answers with 501.
"""

import base64
import contextlib
import hashlib
import http.server
import itertools
import json
import os
import threading
import urllib.parse

NAME = 'runs'
DATE = '2026-01-01T00:00:00.000Z'


class Bucket:
  """Its objects, `{name: bytes}`, and how a process is told where it is.

  `closed` makes it answer 503, `denied` 403, to everything; `calls` counts what
  came.
  """

  def __init__(self, address: str):
    self.address = address
    self.objects = {}
    self.generations = {}
    self.calls = 0
    self.closed = False
    self.denied = False
    self.uploads = {}  # of several requests: {number: (name, bytes so far)}
    self._numbers = itertools.count(1)

  @property
  def variables(self) -> dict[str, str]:
    """Returns what must stand in the environment of a process."""
    return {
      'STORAGE_EMULATOR_HOST': self.address,
      'TENSORSTORE_GCS_HTTP_URL': self.address,
      'GOOGLE_CLOUD_PROJECT': 'tests',
      # Else it asks a server of Google's what kind of bucket it is.
      'GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT': 'false',
      # TensorStore and google-auth else look for a virtual machine's server.
      'NO_GCE_CHECK': 'true',
      'GCE_METADATA_ROOT': 'localhost:1',
    }

  def put(self, name: str, content: bytes) -> None:
    """Stores an object, in place of one that may be there."""
    self.objects[name] = content
    self.generations[name] = next(self._numbers)

  def begin(self, name: str) -> int:
    """Returns the number of an upload that comes in pieces."""
    number = next(self._numbers)
    self.uploads[number] = name, b''
    return number

  def remove(self, name: str) -> None:
    """Removes an object that is there."""
    del self.objects[name], self.generations[name]

  def environment(self) -> dict[str, str]:
    """Returns this process's environment with the bucket in it."""
    return os.environ | self.variables


@contextlib.contextmanager
def serve():
  """Yields an empty Bucket that is served on localhost."""
  server = _Server(('127.0.0.1', 0), _Handler)
  server.bucket = Bucket(f'http://127.0.0.1:{server.server_port}')
  thread = threading.Thread(target=server.serve_forever, daemon=True)
  thread.start()
  try:
    yield server.bucket
  finally:
    server.shutdown()
    server.server_close()


class _Server(http.server.ThreadingHTTPServer):
  daemon_threads = True

  def handle_error(self, request, address):
    del request, address  # a client was killed, as some tests do


class _Handler(http.server.BaseHTTPRequestHandler):
  protocol_version = 'HTTP/1.1'
  wbufsize = -1  # head and body in one packet: no waiting for the other side
  disable_nagle_algorithm = True

  def do_GET(self):
    bucket, (kind, name), query = self._asked()
    if kind == 'bucket':
      self._json({'kind': 'storage#bucket', 'name': NAME})
    elif kind == 'list':
      self._json(_listing(bucket, query))
    elif kind != 'object':
      self._fail(404 if kind == 'missing' else 501)
    elif name not in bucket.objects or not _matches(bucket, name, query):
      self._fail(404 if name not in bucket.objects else 304)
    elif query.get('alt') == 'media':
      self._media(bucket.objects[name], bucket.generations[name])
    else:
      self._json(_about(bucket, name))

  def do_POST(self):
    bucket, (kind, name), query = self._asked()
    body = self.rfile.read(int(self.headers.get('Content-Length', 0)))
    if kind == 'upload' and 'upload_id' in query:
      self._piece(int(query['upload_id']), body)
      return
    if kind == 'upload' and query.get('uploadType') == 'media':
      name, content = query['name'], body
    elif kind == 'upload' and query.get('uploadType') == 'multipart':
      name, content = _parts(body, self.headers['Content-Type'])
    elif kind == 'upload' and query.get('uploadType') == 'resumable':
      number = bucket.begin(query.get('name') or json.loads(body)['name'])
      where = f'{bucket.address}{self.path}&upload_id={number}'
      self._answer(200, b'', {'Location': where})
      return
    elif kind == 'object' and '/moveTo/o/' in name:
      self._move(*name.split('/moveTo/o/'))
      return
    else:
      self._fail(501)
      return
    if not _matches(bucket, name, query):
      self._fail(412)
      return
    bucket.put(name, content)
    self._json(_about(bucket, name))

  def do_DELETE(self):
    bucket, (kind, name), query = self._asked()
    if kind != 'object' or name not in bucket.objects:
      self._fail(404)
    elif not _matches(bucket, name, query):
      self._fail(412)
    else:
      bucket.remove(name)
      self._answer(204, b'')

  def log_message(self, *unused):
    pass

  def _asked(self):
    """Returns the bucket, (what is asked for, its name), the query."""
    bucket = self.server.bucket
    bucket.calls += 1
    url = urllib.parse.urlsplit(self.path)
    query = dict(urllib.parse.parse_qsl(url.query))
    if bucket.closed or bucket.denied:
      return bucket, ('closed', ''), query
    path = url.path.removeprefix('/download')
    upload = path.startswith('/upload')
    root = f'/storage/v1/b/{NAME}'
    rest = path.removeprefix('/upload').removeprefix(root)
    if rest == path.removeprefix('/upload'):
      return bucket, ('missing', ''), query
    if not rest.strip('/'):
      return bucket, ('bucket', NAME), query
    if rest == '/o':
      return bucket, ('upload' if upload else 'list', ''), query
    name = urllib.parse.unquote(rest.removeprefix('/o/'))
    return bucket, ('object', name), query

  def _piece(self, number, body):
    bucket = self.server.bucket
    name, content = bucket.uploads.pop(number)
    content += body
    if self.headers.get('Content-Range', '').endswith('/*'):
      bucket.uploads[number] = name, content
      self._answer(308, b'', {'Range': f'bytes=0-{len(content) - 1}'})
      return
    bucket.put(name, content)
    self._json(_about(bucket, name))

  def _move(self, name, target):
    bucket = self.server.bucket
    if name not in bucket.objects:
      self._fail(404)
      return
    bucket.put(target, bucket.objects[name])
    bucket.remove(name)
    self._json(_about(bucket, target))

  def _media(self, content, generation):
    begin, end = 0, len(content)
    if wanted := self.headers.get('Range'):
      first, _, last = wanted.removeprefix('bytes=').partition('-')
      begin = int(first) if first else end - int(last)
      end = min(int(last) + 1, end) if first and last else end
    headers = {'x-goog-generation': str(generation)}
    if wanted:
      headers['Content-Range'] = f'bytes {begin}-{end - 1}/{len(content)}'
    self._answer(206 if wanted else 200, content[begin:end], headers)

  def _json(self, value):
    self._answer(
      200, json.dumps(value).encode(), {'Content-Type': 'application/json'}
    )

  def _fail(self, status):
    bucket = self.server.bucket
    status = 503 if bucket.closed else 403 if bucket.denied else status
    if status == 304:
      self._answer(304, b'')
      return
    error = {'error': {'code': status, 'message': f'the test says {status}'}}
    self._answer(
      status, json.dumps(error).encode(), {'Content-Type': 'application/json'}
    )

  def _answer(self, status, content, headers=()):
    self.send_response(status)
    for key, value in dict(headers).items():
      self.send_header(key, value)
    self.send_header('Content-Length', str(len(content)))
    self.end_headers()
    self.wfile.write(content)


def _matches(bucket, name, query):
  generation = bucket.generations.get(name, 0)
  wanted = query.get('ifGenerationMatch')
  unwanted = query.get('ifGenerationNotMatch')
  return (wanted is None or int(wanted) == generation) and (
    unwanted is None or int(unwanted) != generation
  )


def _listing(bucket, query):
  prefix, delimiter = query.get('prefix', ''), query.get('delimiter')
  items, folders = [], set()
  for name in sorted(bucket.objects):
    if not name.startswith(prefix) or name < query.get('startOffset', ''):
      continue
    if 'endOffset' in query and name >= query['endOffset']:
      continue
    rest = name[len(prefix) :]
    if delimiter and delimiter in rest:
      folders.add(prefix + rest.partition(delimiter)[0] + delimiter)
    else:
      items.append(_about(bucket, name))
  return {
    'kind': 'storage#objects',
    'items': items,
    'prefixes': sorted(folders),
  }


def _about(bucket, name):
  content = bucket.objects[name]
  return {
    'kind': 'storage#object',
    'id': f'{NAME}/{name}/{bucket.generations[name]}',
    'name': name,
    'bucket': NAME,
    'size': str(len(content)),
    'generation': str(bucket.generations[name]),
    'metageneration': '1',
    'contentType': 'application/octet-stream',
    'md5Hash': base64.b64encode(hashlib.md5(content).digest()).decode(),
    'timeCreated': DATE,
    'updated': DATE,
    'storageClass': 'STANDARD',
  }


def _parts(body, kind):
  """Returns the name and the content of a multipart upload."""
  boundary = kind.partition('boundary=')[2].strip('"').encode()
  about, _, rest = body.partition(b'\n\n')[2].partition(b'\n--' + boundary)
  content = rest.partition(b'\n\n')[2]
  return json.loads(about)['name'], content.rpartition(b'\n--' + boundary)[0]


if __name__ == '__main__':
  with serve() as served:
    for variable, value in served.variables.items():
      print(f'export {variable}={value}', flush=True)
    print(f'# then --config.train.checkpoint_dir=gs://{NAME}/demo', flush=True)
    threading.Event().wait()
